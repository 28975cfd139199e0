-- What people ask of a worker: work, quiet or stop. A beat tells it.
ALTER TABLE workers ADD COLUMN duty text NOT NULL DEFAULT 'work';

DROP FUNCTION IF EXISTS beat(timestamptz, text, bigint);
