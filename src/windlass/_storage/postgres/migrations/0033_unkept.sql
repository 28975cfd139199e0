-- Successes that are not kept are deleted together, by one more function: functions alone have
-- changed.
SELECT 1;
