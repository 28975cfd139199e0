-- Why a worker could not run the job: says something only while missed_at does.
ALTER TABLE jobs ADD COLUMN missed_why TEXT;

-- JSON: the fingerprints of its tasks, and the slots of each queue.
ALTER TABLE workers ADD COLUMN about TEXT NOT NULL DEFAULT '{}';
