-- Flows are counted by state in indexes alone (`count_flows`). Retries go in portions.
CREATE INDEX flows_running ON flows (created_at) WHERE ended_at IS NULL;
DROP INDEX flows_ended;
CREATE INDEX flows_ended ON flows (state, ended_at) INCLUDE (gone) WHERE ended_at IS NOT NULL;

-- They take the parts of a flow, too.
DROP FUNCTION IF EXISTS list_jobs(
    timestamptz, text, timestamptz, bigint, integer, job_filter, integer);
DROP FUNCTION IF EXISTS find_jobs(timestamptz, bigint, integer, job_filter, integer);

-- retry_part, retry_seq: the number of the part, and the job there, that a retry has reached; NULL: none is
-- under way.
ALTER TABLE flows ADD COLUMN retry_part integer, ADD COLUMN retry_seq bigint NOT NULL DEFAULT 0;
CREATE INDEX flows_retrying ON flows (number) WHERE retry_part IS NOT NULL;
DROP FUNCTION IF EXISTS retry_flows(bigint[], timestamptz);
DROP FUNCTION IF EXISTS act_on_flows(timestamptz, text, uuid[], text);
