-- Why a worker could not run the job: says something only while missed_at does.
ALTER TABLE jobs ADD COLUMN missed_why text;

-- JSON: the fingerprints of its tasks, and the slots of each queue.
ALTER TABLE workers ADD COLUMN about text NOT NULL DEFAULT '{}';

-- Functions that take something more now, which is optional: older workers go on calling them.
DROP FUNCTION IF EXISTS promote_some(text, integer, timestamptz, boolean);
DROP FUNCTION IF EXISTS claim_jobs(timestamptz, text, text[], integer[], integer, boolean, integer);
