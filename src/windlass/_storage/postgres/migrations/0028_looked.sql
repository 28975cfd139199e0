-- The steps of a search share what may be looked at: both functions take and say more than before.
DROP FUNCTION IF EXISTS list_jobs(timestamptz, text, timestamptz, bigint, integer, job_filter);
DROP FUNCTION IF EXISTS find_jobs(timestamptz, bigint, integer, job_filter);
