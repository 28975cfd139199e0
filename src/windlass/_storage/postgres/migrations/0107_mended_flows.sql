-- A stopped job that is not needed any more comes back to be skipped: its part tells stopped and skipped jobs apart.
DROP FUNCTION IF EXISTS is_part_due(integer, integer, integer);
DROP FUNCTION IF EXISTS block_again(bigint, integer, timestamptz);
-- Members that are added keep their delay and their expiry, for when they come back.
-- A flow that two transactions add at once is added once.
