-- What follows a lost run: 'fail'; NULL: another one.
ALTER TABLE jobs ADD COLUMN on_lost text;

DROP FUNCTION IF EXISTS insert_jobs(
    timestamptz, boolean, boolean, uuid[], text[], text[], integer[], timestamptz[], bigint[],
    integer[], bytea[], bigint[], bigint[], text[], text[], bigint[], text[], text[], text[], text[],
    text[], text[], text[], text[], text[], text[], boolean);
DROP FUNCTION IF EXISTS insert_keyed_jobs(
    text, timestamptz, boolean, uuid[], text[], text[], integer[], timestamptz[], bigint[],
    integer[], bytea[], bigint[], bigint[], text[], text[], bigint[], text[], text[], text[], text[],
    text[], text[], text[], text[], text[], text[]);
