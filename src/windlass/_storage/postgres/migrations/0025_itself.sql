-- A call that is stored twice at the same instant does not meet itself as the holder of its key: functions
-- alone have changed.
SELECT 1;
