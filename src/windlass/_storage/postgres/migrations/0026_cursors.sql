-- A page that ends at the holder of a key names the next page by a job's number, and many breakers are
-- read at once with what runs: functions alone have changed.
SELECT 1;
