-- Flows that jobs add to their flow: their parts join it.

-- grown: flows were added to it. Then ranks, not numbers, are the order of its parts.
ALTER TABLE flows ADD COLUMN grown boolean NOT NULL DEFAULT false;

-- kind: 4 the join of an added flow: its id (added_id), the number of its first part (added_first), and
-- the part that it counts for (counts_for).
--   rank      the order of the graph (`rank_of` in _core/flows/part.py)
--   adding, added_broken   the flows that jobs of the part added and that have not ended, or have failed
ALTER TABLE parts
    ADD COLUMN rank bigint NOT NULL DEFAULT 0,
    ADD COLUMN adding integer NOT NULL DEFAULT 0 CHECK (adding >= 0),
    ADD COLUMN added_broken integer NOT NULL DEFAULT 0 CHECK (added_broken >= 0),
    ADD COLUMN added_id uuid,
    ADD COLUMN added_first integer,
    ADD COLUMN counts_for integer;

UPDATE parts SET rank = number + CASE WHEN kind >= 2 THEN 1::bigint << 60 ELSE 0 END;

DROP INDEX parts_due;
CREATE INDEX parts_due ON parts (flow, rank) WHERE due;
CREATE UNIQUE INDEX parts_added ON parts (added_id) WHERE added_id IS NOT NULL;

-- Flows that are to join those of the members that added them. The next count of the part stores them
-- (`join_added_flows`): that of the member's end, which comes with it.
--   request   as `start_for_user` reads it
CREATE TABLE added_flows (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL,
    part bigint NOT NULL,
    request json NOT NULL
);

CREATE INDEX added_flows_of_part ON added_flows (part);

-- It takes something more.
DROP FUNCTION IF EXISTS apply_transitions(
    timestamptz, boolean, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], boolean, text[],
    boolean[], text[], integer[], text[], boolean[], text[], boolean);
