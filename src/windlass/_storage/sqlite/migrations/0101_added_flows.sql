-- Flows that jobs add to their flow: their parts join it.

-- rank: the order of the graph (`rank_of` in _core/flows/part.py).
-- adding, added_broken: the flows that jobs of the part added and that have not ended, or have failed.
-- Of the join of an added flow: its id (added_id), the number of its first part (added_first), and the
-- part that it counts for (counts_for). Its kind is stored as 'join'.
-- last_seq: of parts of an added flow, the number of the last job that was given with it.
ALTER TABLE parts ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
ALTER TABLE parts ADD COLUMN adding INTEGER NOT NULL DEFAULT 0 CHECK (adding >= 0);
ALTER TABLE parts ADD COLUMN added_broken INTEGER NOT NULL DEFAULT 0 CHECK (added_broken >= 0);
ALTER TABLE parts ADD COLUMN added_id BLOB;
ALTER TABLE parts ADD COLUMN added_first INTEGER;
ALTER TABLE parts ADD COLUMN counts_for INTEGER;
ALTER TABLE parts ADD COLUMN last_seq INTEGER;

UPDATE parts SET rank = number + iif(kind IN ('end', 'callback'), 1 << 60, 0);

DROP INDEX parts_due;
CREATE INDEX parts_due ON parts (flow, rank) WHERE due = 1;
CREATE UNIQUE INDEX parts_added ON parts (added_id) WHERE added_id IS NOT NULL;
