-- The lock on limits, instants, and lanes: where limited jobs wait. Functions for functions: none
-- of these is a separate transaction.
-- Their planner settings: 99_settings.sql.

-- --- one lock -----------------------------------------------------------------------------------

-- Every change of gates, lanes, bays or cool-downs takes this lock first, in a separate statement, so that
-- the next statement sees what others have committed: counting in the statement that waited counts
-- what was there before the wait, and lets in too many. It is held until the transaction ends.
--
-- One lock for all limits: a job may need several of them in any combination, and a release may
-- open lanes of any queue. It costs limited jobs their parallelism, one batch at a time with its
-- commit. Jobs without limits never wait for it.
--
-- Order of locks everywhere: this one, those of `lock_queues`, jobs by seq, keys by key, rows of
-- queues (several at once only under this one), rollups by key.
CREATE OR REPLACE FUNCTION lock_lanes() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_read_committed();
    PERFORM pg_advisory_xact_lock(to_regnamespace(quote_ident(current_schema))::oid::integer, 1);
END $$;

-- --- instants -----------------------------------------------------------------------------------

-- An instant plus microseconds, or the last instant: an unreadable instant would
-- stop its whole queue. NULL for NULL.
CREATE OR REPLACE FUNCTION after(p_now timestamptz, p_us bigint) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN p_us IS NOT NULL THEN
        least(p_now + p_us * interval '1 microsecond', timestamptz '9000-01-01 00:00:00+00')
    END
$$;

-- Microseconds since the epoch, exactly.
CREATE OR REPLACE FUNCTION us_of(p_at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM date_trunc('second', p_at))::bigint * 1000000
            + extract(microseconds FROM p_at)::bigint % 1000000)
$$;

-- How a write is committed: true, on the server's disk at least; false, soon; NULL, as it is.
-- Never less than the server was set up for when it must be durable.
CREATE OR REPLACE FUNCTION commit_durably(p_durable boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_durable THEN
        IF current_setting('synchronous_commit') IN ('off', 'local') THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
    ELSIF NOT p_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END $$;

-- --- lanes and the bays they stand in -----------------------------------------------------------

CREATE OR REPLACE FUNCTION find_bay(p_queue text, p_gate text, p_cost float8) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_bay bigint;
BEGIN
    SELECT id INTO v_bay FROM bays WHERE queue = p_queue AND gate = p_gate AND cost = p_cost;
    IF NOT FOUND THEN
        -- The head follows in the same operation, when the bay is settled.
        INSERT INTO bays (queue, gate, cost, head_priority, head_due, head_seq)
        VALUES (p_queue, p_gate, p_cost, 0, 'infinity', 0)
        RETURNING id INTO v_bay;
    END IF;
    RETURN v_bay;
END $$;

-- The lane of a queue's jobs with these limits; made where there is none.
CREATE OR REPLACE FUNCTION find_lane(p_queue text, p_gates text[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_digest bytea;
    v_lane bigint;
BEGIN
    SELECT sha256(convert_to(array_agg(DISTINCT g COLLATE "C" ORDER BY g COLLATE "C")::text,
                             'UTF8'))
      INTO v_digest FROM unnest(p_gates) g;
    SELECT id INTO v_lane FROM lanes WHERE queue = p_queue AND digest = v_digest;
    IF NOT FOUND THEN
        INSERT INTO lanes (queue, digest, bay, head_priority, head_due, head_seq)
        VALUES (p_queue, v_digest, find_bay(p_queue, p_gates[1], -1), 0, 'infinity', 0)
        RETURNING id INTO v_lane;
    END IF;
    RETURN v_lane;
END $$;

-- Make a bay follow its lanes.
CREATE OR REPLACE FUNCTION settle_bay(p_bay bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_head record;
BEGIN
    SELECT head_priority, head_due, head_seq INTO v_head FROM lanes WHERE bay = p_bay
     ORDER BY head_priority, head_due, head_seq LIMIT 1;
    IF FOUND THEN
        UPDATE bays b SET head_priority = v_head.head_priority, head_due = v_head.head_due,
                          head_seq = v_head.head_seq
         WHERE b.id = p_bay AND (b.head_priority, b.head_due, b.head_seq)
               IS DISTINCT FROM (v_head.head_priority, v_head.head_due, v_head.head_seq);
    ELSE
        DELETE FROM bays WHERE id = p_bay;
    END IF;
END $$;

-- Make a lane follow its jobs: its head is read from them, so it cannot drift. With p_gate, its
-- head was refused for that reason (as `find_shut` says), and the lane waits in that bay. Cost -2:
-- not refused, but locked, perhaps in a transaction of the user's that stays open.
-- p_news: jobs that have just come, which have not asked yet, even where one like it stood.
CREATE OR REPLACE FUNCTION settle_lane(
    p_lane bigint, p_gate text DEFAULT NULL, p_cost float8 DEFAULT NULL,
    p_opens_at bigint DEFAULT NULL, p_news bigint[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_lane record;
    v_head record;
    v_bay bigint;
    v_moved boolean;
BEGIN
    SELECT l.queue, l.bay, l.head_priority, l.head_due, l.head_seq, b.gate, b.cost INTO v_lane
      FROM lanes l JOIN bays b ON b.id = l.bay
     WHERE l.id = p_lane;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT priority, due, seq INTO v_head FROM jobs WHERE lane = p_lane AND ready = 2
     ORDER BY priority, due, seq LIMIT 1;
    IF NOT FOUND THEN
        DELETE FROM lanes WHERE id = p_lane;
        PERFORM settle_bay(v_lane.bay);
        RETURN;
    END IF;
    v_moved := (v_lane.head_priority, v_lane.head_due, v_lane.head_seq)
               IS DISTINCT FROM (v_head.priority, v_head.due, v_head.seq)
               OR coalesce(v_head.seq = ANY (p_news), false);
    v_bay := v_lane.bay;
    IF p_gate IS NOT NULL THEN
        IF (p_gate, p_cost) <> (v_lane.gate, v_lane.cost) THEN
            v_bay := find_bay(v_lane.queue, p_gate, p_cost);
        END IF;
        UPDATE bays SET opens_at = p_opens_at WHERE id = v_bay;
    ELSIF v_moved AND v_lane.cost <> -1 THEN
        -- Another job is at the head and may need fewer tokens: it has not asked yet.
        v_bay := find_bay(v_lane.queue, v_lane.gate, -1);
    END IF;
    IF v_moved OR v_bay <> v_lane.bay THEN
        UPDATE lanes SET bay = v_bay, head_priority = v_head.priority, head_due = v_head.due,
                         head_seq = v_head.seq
         WHERE id = p_lane;
        PERFORM settle_bay(v_bay);
        IF v_bay <> v_lane.bay THEN
            PERFORM settle_bay(v_lane.bay);
        END IF;
    END IF;
END $$;

-- A unit of each of these gates has come back. Few bays, however many lanes: one per queue.
CREATE OR REPLACE FUNCTION open_gates(p_gates text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bays SET opens_at = 0 WHERE gate = ANY (p_gates) AND opens_at IS NULL;
END $$;

-- The numbers of a limit have changed: lanes that wait for it may ask again. All of its gates: the
-- one without a key, and those whose names continue with a colon.
CREATE OR REPLACE FUNCTION open_limit(p_name text) RETURNS void
LANGUAGE sql AS $$
    UPDATE bays SET opens_at = 0
     WHERE gate = p_name OR (gate >= p_name || ':' AND gate < p_name || ';')
$$;

-- Gates were charged: bays that wait for their tokens open later than stored. A bounded number of
-- each; the others find out when their old instant comes: too early a look costs a visit.
CREATE OR REPLACE FUNCTION postpone_bays(p_gates text[], p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_bay record;
    v_opens_at bigint;
BEGIN
    FOR v_bay IN
        SELECT timed.id, timed.gate, timed.cost
          FROM (SELECT DISTINCT g FROM unnest(p_gates) g) AS charged,
               LATERAL (SELECT t.id, t.gate, t.cost FROM bays t
                         WHERE t.gate = charged.g AND t.opens_at > 0 AND t.cost >= 0
                         ORDER BY t.opens_at LIMIT 64) AS timed
    LOOP
        SELECT a.opens_at INTO v_opens_at FROM ask_bucket(v_bay.gate, v_bay.cost, p_now) a;
        IF v_opens_at IS NOT NULL THEN
            UPDATE bays SET opens_at = v_opens_at WHERE id = v_bay.id;
        END IF;
    END LOOP;
END $$;
