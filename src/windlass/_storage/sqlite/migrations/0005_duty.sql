-- What people ask of a worker: work, quiet or stop.
ALTER TABLE workers ADD COLUMN duty TEXT NOT NULL DEFAULT 'work';
