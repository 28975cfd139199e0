-- Lists of jobs in the order of a time: functions only.
SELECT 1;
