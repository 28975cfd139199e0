-- Flows are counted by state in indexes alone (`count_flows`). Retries go in portions.
CREATE INDEX flows_running ON flows (created_at) WHERE ended_at IS NULL;
DROP INDEX flows_ended;
CREATE INDEX flows_ended ON flows (state, ended_at) INCLUDE (gone) WHERE ended_at IS NOT NULL;

-- They take the parts of a flow, too.
DROP FUNCTION IF EXISTS list_jobs(
    timestamptz, text, timestamptz, bigint, integer, job_filter, integer);
DROP FUNCTION IF EXISTS find_jobs(timestamptz, bigint, integer, job_filter, integer);

-- retry_rank, retry_seq: the rank of the part, and the job there, that a retry has reached; NULL: none is
-- under way.
ALTER TABLE flows ADD COLUMN retry_rank bigint, ADD COLUMN retry_seq bigint NOT NULL DEFAULT 0;
CREATE INDEX flows_retrying ON flows (number) WHERE retry_rank IS NOT NULL;
CREATE INDEX parts_ranked ON parts (flow, rank) WHERE kind = 0;
DROP FUNCTION IF EXISTS retry_flows(bigint[], timestamptz);
DROP FUNCTION IF EXISTS act_on_flows(timestamptz, text, uuid[], text);
