-- Locks: which ones there are, in which order they are taken, and why no operation waits in a circle.
--
-- ORDER. Every transaction takes its locks in this order, each kind at most once, and all of the
-- advisory ones before its first row:
--
--   1. the schema's lock     shared by all that follow; alone for what changes every limit at once
--                            (a clock that was set back, a restored copy)
--   2. cool-downs            `lock_cool_downs`: for changes of several rows of `queues`
--   3. limits                `lock_limits`: one lock per limit's name, in the order of their numbers
--   4. counted queues        `lock_queues`: queues with a number of jobs that may run at once, likewise
--   5. rows of jobs by seq, keys by key, rows of queues, rollups by key
--   6. rows of part_counts by part, rows of flows by number; then rows of parts, which the lock on
--      their flow guards
--
-- A caller that finds out under its rows that it lacks a lock of 1 to 4 does not take it. It leaves
-- that job or lane to the next operation, or starts again (serialization_failure).
--
-- WHAT A LIMIT'S LOCK GUARDS. The limit's definition, its gates (one per key), their holds, the bays
-- of those gates in every queue, and every lane whose jobs need one of those gates. A lane of several
-- limits is guarded by all of them: it is touched under all of their locks or not at all. So is a bay:
-- each lane in it needs the bay's gate. Limits without a common lane never wait for each other.
-- Names share 1,024 numbers: a transaction holds a bounded number of locks, however many limits
-- there are.
--
-- The locks are taken in a separate statement, so that the next statement sees what others have
-- committed: counting in the statement that waited counts what was there before the wait, and lets in
-- too many. They are held until the transaction ends.
--
-- WHO TAKES WHAT.
--   insert       the limits of its jobs. In a user's transaction, and for jobs with keys, none: such
--                jobs stay "later", due now, and the next claim puts them into their lanes
--   claim        all limits that its queues' lanes may need (`lane_limits`), those of limited jobs
--                that fall due and of solo jobs; then counted queues. Waiting jobs are locked with
--                SKIP LOCKED only: a claim never waits for a row of jobs
--   finish       the limits of its jobs (a running job's limits never change), cool-downs before
--                them where a queue cools down or is forgiven; then all its rows of jobs by seq, before
--                it changes one, or in the one statement that changes them. A claim that does not hold
--                never will again: its job is read, not locked. Rollups are written after the jobs
--                that follow are stored, which may wait for keys
--   cancel, edit, delete, expire   the limits of the waiting jobs they name. A job's limits may be
--                replaced, or the job may come back to wait, before its row is locked: then the
--                operation starts again
--   promotion    the limits of the jobs that fall due, as they were seen; others are left
--   an operator  define, drain, reset: the limits that are named
--   a flow's settling   none: dependents with limits stay "later", due now, as in a user's transaction
--
-- FLOWS. Every transaction that ends members, or brings them back, counts them once, after all its other
-- rows (`count_members`): it waits for the counts of their parts, then, only where a part has something
-- new to tell, for their flows. It holds these until its end and waits for nothing any more. So nothing
-- that holds a flow waits for a part or for a job. A flow that is added from outside (`add_to_flow`) takes
-- the running flow's row alone, as its first, and stores new rows under it. A start holds no flow but its
-- own: one that must give its key up is cancelled before, in a transaction of its own
-- (`give_flow_key_up`). A transaction that may not wait there, because it counts twice (a claim beside
-- ends, a worker that leaves), stays open for long (a user's), or stores other jobs (an expired holder of
-- a key), writes down what ended (`member_ends`); `fold_ends` counts that later. Settling and folding take
-- flows, parts and jobs with SKIP LOCKED alone, and so may follow anything: claims and ends call them
-- under the rows that they hold. What another transaction has is left to the next call. The end of a
-- part's last job places the jobs of the next part likewise, without marking it first (`open_next`): it
-- has the flow by then, and takes that part's counts and jobs if they are free. Keys are an exception:
-- they are waited for 20 ms, which is below the time after which a deadlock is looked for.
--
-- WHY NO DEADLOCK. 1 to 4 are taken in one total order (mode and number), before any row, so no
-- circle consists of these alone. A circle through a row needs a transaction that holds the row and
-- waits for a lock of 1 to 4: there is none. Among rows: jobs are locked by seq or with SKIP LOCKED
-- (seq = ANY is a scan of the primary key, which sorts the numbers; 99_settings.sql allows no bitmap);
-- keys, rollups and flows' keys are compared byte by byte, whatever the database's collation;
-- gates, holds, bays and lanes only under the locks that guard them, so no caller waits for these; the
-- row `charged` of marks is skipped where another transaction has it, which writes the same instant.
--
-- WHY NO OVERSHOOT. A gate's usage is the number of its running jobs. It rises in claims only, and
-- these hold the limit's lock from before they count until they have committed. It falls with a
-- finish; a claim that does not see it yet counts too many, never too few. Tokens are spent and
-- definitions changed under the same lock.
--
-- WHY NO LANE IS FORGOTTEN. A claim closes a bay when it finds its gate full. The finish that frees a
-- unit holds the same lock, so it comes before, and the claim counts without it, or after, and opens
-- the bay. A finish in a user's transaction holds none: `ended_for_user` and `sweep_holds` open the
-- bay afterwards, under the lock.
--
-- THE VISIT (45_visit.sql) reads lanes in their order, a chunk at a time, by one function: the lanes
-- that were never refused and those of the open bays, by their heads, then the jobs of these, cut where
-- the next lane or job that was not read may come first. One function reads all gates those jobs need.
-- Where these have room for all jobs that fit, the jobs start without a further look. Else they are judged in
-- their order, in memory, so that each is counted before the next. Then few statements write for all of
-- them: start, holds, gates, lanes, bays. Only that function, `next_in_lanes`, knows the order of lanes:
-- by head here, by turn in a fair queue.
--
-- Their planner settings: 99_settings.sql.

-- What is counted must be what others have committed by now.
CREATE OR REPLACE FUNCTION require_read_committed() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- Only behind a pooler: elsewhere our connections say what they need when they are opened.
        RAISE EXCEPTION 'limits are counted under READ COMMITTED only. Behind a pooler the role '
            'must have it: ALTER ROLE % SET default_transaction_isolation = ''read committed''',
            quote_ident(current_user)
            USING ERRCODE = 'feature_not_supported';
    END IF;
END $$;

-- The first half of the keys of our locks. The second: 0 cool-downs, 1 the schema's, from 2 limits.
CREATE OR REPLACE FUNCTION lock_space() RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    RETURN to_regnamespace(quote_ident(current_schema))::oid::integer;
END $$;

-- Take the locks of these limits, by their names.
CREATE OR REPLACE FUNCTION lock_limits(p_names text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_space integer := lock_space();
    v_lock integer;
BEGIN
    PERFORM require_read_committed();
    PERFORM pg_advisory_xact_lock_shared(v_space, 1);
    FOR v_lock IN
        SELECT DISTINCT 2 + (hashtext(n.name) & 1023) AS number
          FROM unnest(p_names) AS n (name) ORDER BY number
    LOOP
        PERFORM pg_advisory_xact_lock(v_space, v_lock);
    END LOOP;
END $$;

-- Take the lock of cool-downs; before `lock_limits`.
CREATE OR REPLACE FUNCTION lock_cool_downs() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_space integer := lock_space();
BEGIN
    PERFORM require_read_committed();
    PERFORM pg_advisory_xact_lock_shared(v_space, 1);
    PERFORM pg_advisory_xact_lock(v_space, 0);
END $$;

-- Take the schema's lock alone: no other transaction holds a limit or a cool-down then.
CREATE OR REPLACE FUNCTION lock_all_limits() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_read_committed();
    PERFORM pg_advisory_xact_lock(lock_space(), 1);
END $$;

-- Claims of queues with a number of jobs that may run at once take one lock for each such queue,
-- always in the same order, so that no claim starts others between their counting and their commit.
-- The answer: those queues. Where no queue has a number there is nothing to lock.
CREATE OR REPLACE FUNCTION lock_queues(p_queues text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_names text[];
    v_lock bigint;
BEGIN
    SELECT array_agg(q.name) INTO v_names FROM queues q
     WHERE q.name = ANY (p_queues) AND q.max_running IS NOT NULL;
    IF v_names IS NOT NULL THEN
        PERFORM require_read_committed();
        FOR v_lock IN
            SELECT DISTINCT hashtextextended(current_schema || '/' || n.name, 0) AS number
              FROM unnest(v_names) AS n (name) ORDER BY number
        LOOP
            PERFORM pg_advisory_xact_lock(v_lock);
        END LOOP;
    END IF;
    RETURN v_names;
END $$;

-- The names of the limits that these gates are of.
CREATE OR REPLACE FUNCTION limits_of(p_gates text[]) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT split_part(g, ':', 1) FROM unnest(p_gates) AS g);
END $$;

-- The same for jobs: for callers that lock them next.
CREATE OR REPLACE FUNCTION limits_of_jobs(p_seqs bigint[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT split_part(g, ':', 1) FROM jobs j, unnest(j.gates) AS g
                  WHERE j.seq = ANY (p_seqs));
END $$;

-- The same for those of these jobs that wait: for callers that move them.
CREATE OR REPLACE FUNCTION limits_of_waiting(p_ids uuid[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT split_part(g, ':', 1) FROM jobs j, unnest(j.gates) AS g
                  WHERE j.id = ANY (p_ids) AND j.state + 0 = 0);
END $$;
