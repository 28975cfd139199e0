-- Members are claimed, counted and placed with fewer statements.

-- The end of a flow lists all of its parts, and its row is written whenever one of them ends: the lists are
-- kept outside the row, so that they are not written with it.
ALTER TABLE parts
    ALTER COLUMN after SET STORAGE EXTERNAL, ALTER COLUMN strict SET STORAGE EXTERNAL,
    ALTER COLUMN feeds SET STORAGE EXTERNAL, ALTER COLUMN feeds_strict SET STORAGE EXTERNAL,
    SET (toast_tuple_target = 256);

-- One check in place of many: each one is read anew by every statement that writes the table.
ALTER TABLE parts
    DROP CONSTRAINT parts_waiting_check, DROP CONSTRAINT parts_broken_check,
    DROP CONSTRAINT parts_unneeded_check, DROP CONSTRAINT parts_adding_check,
    DROP CONSTRAINT parts_added_broken_check,
    ADD CONSTRAINT parts_check
        CHECK (least(waiting, broken, unneeded, adding, added_broken) >= 0) NOT VALID;
ALTER TABLE part_counts
    DROP CONSTRAINT part_counts_total_check, DROP CONSTRAINT part_counts_open_check,
    DROP CONSTRAINT part_counts_blocked_check, DROP CONSTRAINT part_counts_succeeded_check,
    DROP CONSTRAINT part_counts_failed_check, DROP CONSTRAINT part_counts_cancelled_check,
    DROP CONSTRAINT part_counts_stopped_check, DROP CONSTRAINT part_counts_skipped_check,
    ADD CONSTRAINT part_counts_check
        CHECK (least(total, open, blocked, succeeded, failed, cancelled, stopped, skipped) >= 0)
        NOT VALID;

-- They take or answer something else.
DROP FUNCTION IF EXISTS place_of(bigint, boolean);
DROP FUNCTION IF EXISTS extras_of(jobs);
DROP FUNCTION IF EXISTS claim_jobs(
    timestamptz, text, text[], integer[], integer, boolean, integer, bigint, boolean, text[], text[]);
DROP FUNCTION IF EXISTS apply_successes(timestamptz, boolean, bigint[], integer, text, bytea);
