-- Operations that discard jobs past their expiry say which.
DROP FUNCTION IF EXISTS expire_waiting(timestamptz, boolean, integer);
DROP FUNCTION IF EXISTS meet_key(
    text, bigint, timestamptz, timestamptz, bigint[], text, boolean
);
DROP FUNCTION IF EXISTS insert_together(timestamptz, boolean, text[]);
DROP FUNCTION IF EXISTS insert_ordered(timestamptz, boolean, text, text);
