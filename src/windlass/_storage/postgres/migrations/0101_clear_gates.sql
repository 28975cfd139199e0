-- Only functions change: jobs of lanes that no gate refuses are started together. These answer something more.
-- A function of the version before that is under way calls the new ones, with the arguments it has.
DROP FUNCTION IF EXISTS read_gates(text[], bigint);
DROP FUNCTION IF EXISTS start_limited(bigint[], text, timestamptz, record, record);
DROP FUNCTION IF EXISTS serve_lanes(
    text, integer, text, timestamptz, text[], bigint[], integer[], timestamptz[]);
