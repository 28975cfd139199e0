-- Queues: cool-downs, how many jobs may run,
-- and settings.

-- Start a cool-down of a queue, for as long as the number of cool-downs before says (microseconds, by that
-- number, the last one beyond) or p_delay. A queue that cools down already is left as it is: many who hit one
-- limiter are one hit. The caller has called `lock_cool_downs`.
CREATE OR REPLACE FUNCTION cool_queue(
    p_queue text, p_cools bigint[], p_delay bigint, p_now timestamptz,
    OUT cool_until timestamptz, OUT cooled boolean
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_queue queues;
    v_count integer;
    v_until timestamptz;
    -- By a clock that was set back a cool-down begins where all others stand: `mend_gates` moves it with
    -- them.
    v_back interval := set_back_by(us_of(p_now)) * interval '1 microsecond';
BEGIN
    SELECT * INTO v_queue FROM queues q WHERE q.name = p_queue FOR UPDATE;
    IF v_queue.cool_until > p_now + v_back THEN
        cool_until := v_queue.cool_until - v_back;
        cooled := false;
        RETURN;
    END IF;
    v_count := coalesce(v_queue.cool_downs, 0);
    v_until := after(
        p_now + v_back, greatest(p_cools[least(v_count + 1, cardinality(p_cools))], p_delay));
    cool_until := v_until - v_back;
    cooled := true;
    PERFORM reckon_from(us_of(p_now));
    INSERT INTO queues AS q (name, cool_until, cool_downs)
    VALUES (p_queue, v_until, least(v_count + 1, 30))
    ON CONFLICT (name) DO UPDATE
       SET cool_until = excluded.cool_until, cool_downs = excluded.cool_downs;
END $$;

-- What a cool-down must lie back for a success to forget it: GRACE in _core/limits/cooldown.py.
CREATE OR REPLACE FUNCTION forgiven_before(p_now timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT p_now - interval '120 seconds'
$$;

-- Whether a success of one of these jobs, now, would forget the cool-downs of its queue. Read-only;
-- where no queue has cooled down, one look into an empty index.
CREATE OR REPLACE FUNCTION may_forgive(p_seqs bigint[], p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM queues q WHERE q.cool_until <= forgiven_before(p_now)) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT 1 FROM jobs j JOIN queues q ON q.name = j.queue
                    WHERE j.seq = ANY (p_seqs) AND q.cool_until <= forgiven_before(p_now));
END $$;

-- A job of each of these queues has succeeded. The caller has called `lock_cool_downs`.
CREATE OR REPLACE FUNCTION forgive_queues(p_queues text[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE queues q SET cool_until = NULL, cool_downs = 0
     WHERE q.name = ANY (p_queues) AND q.cool_until <= forgiven_before(p_now);
END $$;

-- How many more jobs of a queue may run; NULL: any number. Reads what runs, which is no more than
-- the slots of all workers, and only where the queue has a number.
CREATE OR REPLACE FUNCTION room_in(p_queue text, p_most integer) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    IF p_most IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN p_most - (
        SELECT count(*) FROM (
            SELECT 1 FROM jobs j WHERE j.state = 1 AND j.queue = p_queue LIMIT p_most
        ) AS running
    )::integer;
END $$;

-- `QueueStore.change`: settings, if those stored are still the same text (NULL: none).
CREATE OR REPLACE FUNCTION change_queue(
    p_queue text, p_settings text, p_max_running integer, p_old text,
    p_at timestamptz DEFAULT NULL, p_audit text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
BEGIN
    PERFORM commit_durably(true);
    INSERT INTO queues (name) VALUES (p_queue) ON CONFLICT (name) DO NOTHING;
    UPDATE queues q SET settings = p_settings, max_running = p_max_running
     WHERE q.name = p_queue AND q.settings IS NOT DISTINCT FROM p_old;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM keep_audit(p_audit, coalesce(p_at, clock_timestamp()), 1);
    RETURN true;
END $$;

-- `QueueStore.warm`.
CREATE OR REPLACE FUNCTION warm_queue(
    p_queue text, p_at timestamptz DEFAULT NULL, p_audit text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
BEGIN
    PERFORM commit_durably(true);
    UPDATE queues q SET cool_until = NULL, cool_downs = 0
     WHERE q.name = p_queue AND (q.cool_until IS NOT NULL OR q.cool_downs > 0);
    PERFORM keep_audit(p_audit, coalesce(p_at, clock_timestamp()), 1);
END $$;
