-- Functions that store jobs can be told to refuse an id that is stored with another call.
DROP FUNCTION IF EXISTS insert_jobs(
    timestamptz, boolean, boolean, uuid[], text[], text[], integer[], timestamptz[], bigint[],
    integer[], bytea[], bigint[], bigint[], text[], text[], bigint[], text[], text[], text[], text[],
    text[], text[], text[], text[], text[], text[]);
DROP FUNCTION IF EXISTS insert_listed(timestamptz, boolean, json);
