-- What a job keeps of its first start.

-- A key held until the start was given up for good: its handler was entered, or it was requeued.
ALTER TABLE jobs ADD COLUMN key_spent INTEGER NOT NULL DEFAULT 0;
