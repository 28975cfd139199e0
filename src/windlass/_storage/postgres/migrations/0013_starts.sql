-- What a job keeps of its first start.

-- A key held until the start was given up for good: its handler was entered, or it was requeued.
ALTER TABLE jobs ADD COLUMN key_spent boolean NOT NULL DEFAULT false;

DROP FUNCTION IF EXISTS apply_transition(
    timestamptz, bigint, integer, text, text, bigint, boolean, bytea, text, text, text, integer,
    boolean, boolean, text, boolean, bigint[], boolean, boolean, text);
DROP FUNCTION IF EXISTS apply_transitions(
    timestamptz, boolean, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], boolean, text[],
    boolean[], text[], integer[], text[]);
DROP FUNCTION IF EXISTS leave_worker(
    timestamptz, boolean, text, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], text[], boolean[],
    text[], integer[], text[]);
