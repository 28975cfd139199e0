-- A claim says which schema version its code knows.
DROP FUNCTION IF EXISTS claim_jobs(timestamptz, text, text[], integer[], integer, boolean);
