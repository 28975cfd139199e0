-- The facts that handlers noted: in the run that ended last, and in each that did not succeed. JSON.
ALTER TABLE jobs ADD COLUMN metadata text;
ALTER TABLE history ADD COLUMN metadata text;

-- They take one argument more.
DROP FUNCTION IF EXISTS apply_transition(
    timestamptz, bigint, integer, text, text, bigint, boolean, bytea, text, text, text, integer,
    boolean, boolean, text, boolean, bigint[], boolean, boolean, text, boolean);
DROP FUNCTION IF EXISTS apply_transitions(
    timestamptz, boolean, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], boolean, text[],
    boolean[], text[], integer[], text[], boolean[]);
DROP FUNCTION IF EXISTS leave_worker(
    timestamptz, boolean, text, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], text[], boolean[],
    text[], integer[], text[], boolean[]);
