-- A claim looks for lanes of its own queue whose first job has expired.
CREATE INDEX jobs_expiring_in_lane ON jobs (queue, expires_at)
 WHERE ready = 2 AND expires_at IS NOT NULL;
