-- Flow control: cool-downs and settings of queues, breakers, follow-ups, retention by queue.

-- Behind the large columns, where reading them costs nothing while there is nothing in them: a
-- missing value is told by the row's header.
ALTER TABLE jobs ADD COLUMN throttled INTEGER NOT NULL DEFAULT 0;
-- JSON: the job to insert when this one has failed for good.
ALTER TABLE jobs ADD COLUMN on_failure TEXT;

-- settings: JSON of what differs from nothing set; max_running repeats what claims need of it.
ALTER TABLE queues ADD COLUMN settings TEXT;
ALTER TABLE queues ADD COLUMN max_running INTEGER;
ALTER TABLE queues ADD COLUMN cool_until INTEGER;
ALTER TABLE queues ADD COLUMN cool_downs INTEGER NOT NULL DEFAULT 0;

-- A success asks which queues have cooled down so long ago that it is forgotten.
CREATE INDEX queues_cooled ON queues (cool_until) WHERE cool_until IS NOT NULL;

-- For the gates of breakers: failures in a row, how often it has opened in a row, until when.
ALTER TABLE gates ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gates ADD COLUMN opened INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gates ADD COLUMN open_until INTEGER;

-- Queues keep their ended jobs for different times. By time alone, the many of one that keeps
-- them long would stand before the few of another that are old enough.
DROP INDEX jobs_finished;
CREATE INDEX jobs_finished ON jobs (state, queue, finished_at) WHERE state >= 2;

-- With the queue in it, how many of one run is counted without a look at any row. It stands last:
-- a worker's jobs are asked for in their order.
DROP INDEX jobs_running;
CREATE INDEX jobs_running ON jobs (worker, seq, queue) WHERE state = 1;
