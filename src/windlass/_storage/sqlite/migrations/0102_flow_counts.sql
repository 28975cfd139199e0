-- Flows are counted by state, and their blocked jobs, in indexes alone.
CREATE INDEX flows_running ON flows (created_at) WHERE ended_at IS NULL;
DROP INDEX flows_ended;
CREATE INDEX flows_ended ON flows (state, ended_at) WHERE ended_at IS NOT NULL AND going = 0;
CREATE INDEX parts_blocked ON parts (blocked) WHERE blocked > 0;
