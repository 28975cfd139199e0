-- A claim may be told not to wait for locks.
DROP FUNCTION IF EXISTS
    claim_jobs(timestamptz, text, text[], integer[], integer, boolean, integer, bigint);
