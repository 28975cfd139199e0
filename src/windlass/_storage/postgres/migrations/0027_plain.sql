-- Jobs that carry nothing special are stored by a function of few parameters: functions alone have
-- changed.
SELECT 1;
