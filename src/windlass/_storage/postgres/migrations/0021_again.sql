-- Functions that store jobs can be told to say which ids were stored before.
DROP FUNCTION IF EXISTS insert_jobs(
    timestamptz, boolean, boolean, uuid[], text[], text[], integer[], timestamptz[], bigint[],
    integer[], bytea[], bigint[], bigint[], text[], text[], bigint[], text[], text[], text[], text[],
    text[], text[], text[], text[], text[], text[], boolean, text[]);
DROP FUNCTION IF EXISTS insert_keyed_jobs(
    text, timestamptz, boolean, uuid[], text[], text[], integer[], timestamptz[], bigint[],
    integer[], bytea[], bigint[], bigint[], text[], text[], bigint[], text[], text[], text[], text[],
    text[], text[], text[], text[], text[], text[], text[], boolean);
DROP FUNCTION IF EXISTS insert_listed(timestamptz, boolean, json, boolean);
DROP FUNCTION IF EXISTS insert_ordered(timestamptz, boolean, text, text, boolean);
