-- Flows are counted by state, and their blocked jobs, in indexes alone. Retries go in portions.
CREATE INDEX flows_running ON flows (created_at) WHERE ended_at IS NULL;
DROP INDEX flows_ended;
CREATE INDEX flows_ended ON flows (state, ended_at) WHERE ended_at IS NOT NULL AND going = 0;
CREATE INDEX parts_blocked ON parts (blocked) WHERE blocked > 0;

-- retry_rank, retry_seq: the rank of the part, and the job there, that a retry has reached; NULL: none is
-- under way.
ALTER TABLE flows ADD COLUMN retry_rank INTEGER;
ALTER TABLE flows ADD COLUMN retry_seq INTEGER NOT NULL DEFAULT 0;
CREATE INDEX flows_retrying ON flows (retry_rank) WHERE retry_rank IS NOT NULL;
CREATE INDEX parts_ranked ON parts (flow, rank) WHERE kind = 'jobs';
