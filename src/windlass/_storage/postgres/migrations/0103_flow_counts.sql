-- Flows are counted by state in indexes alone (`count_flows`).
CREATE INDEX flows_running ON flows (created_at) WHERE ended_at IS NULL;
DROP INDEX flows_ended;
CREATE INDEX flows_ended ON flows (state, ended_at) INCLUDE (gone) WHERE ended_at IS NOT NULL;

-- They take the parts of a flow, too.
DROP FUNCTION IF EXISTS list_jobs(
    timestamptz, text, timestamptz, bigint, integer, job_filter, integer);
DROP FUNCTION IF EXISTS find_jobs(timestamptz, bigint, integer, job_filter, integer);
