-- Lanes and gates: who may start, and where the others wait. Functions for functions: none of
-- these is a transaction of its own.
--
-- Planner settings hang on the functions. A plan is kept by the session that made it, also one
-- made while the tables were empty, and must be right for millions of rows: by index, row by row.
-- Setting them takes time, too: the small functions that a claim calls for every limited job have
-- none, and are only called by functions that have all of them.

-- --- one lock -----------------------------------------------------------------------------------

-- Whatever changes gates, lanes or bays takes this lock first, in a statement of its own, so that
-- the next statement sees what others have committed: counting in the statement that waited counts
-- what was there before the wait, and lets in too many. It is held until the transaction ends.
--
-- One lock for all limits: a job may need several of them in any combination, and a release may
-- open lanes of any queue. It costs limited jobs their parallelism, one batch at a time with its
-- commit. Jobs without limits never wait for it.
--
-- Order of locks everywhere: this one, jobs by seq, keys by key, rollups by key.
CREATE FUNCTION lock_lanes() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- Only behind a pooler: elsewhere our connections say what they need when they are opened.
        RAISE EXCEPTION 'limits are counted under READ COMMITTED only. Behind a pooler the role '
            'must have it: ALTER ROLE % SET default_transaction_isolation = ''read committed''',
            quote_ident(current_user)
            USING ERRCODE = 'feature_not_supported';
    END IF;
    PERFORM pg_advisory_xact_lock(to_regnamespace(quote_ident(current_schema))::oid::integer, 1);
END $$;

-- --- instants -----------------------------------------------------------------------------------

-- So many microseconds after an instant, or the last one: an instant that nobody can read would
-- stop its whole queue. NULL for NULL.
CREATE FUNCTION after(p_now timestamptz, p_us bigint) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN p_us IS NOT NULL THEN
        least(p_now + p_us * interval '1 microsecond', timestamptz '9000-01-01 00:00:00+00')
    END
$$;

-- Microseconds since the epoch, exactly.
CREATE FUNCTION us_of(p_at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM date_trunc('second', p_at))::bigint * 1000000
            + extract(microseconds FROM p_at)::bigint % 1000000)
$$;

-- How a write is committed: true, on the server's disk at least; false, soon; NULL, as it is.
-- Never less than the server was set up for when it must be durable.
CREATE FUNCTION commit_durably(p_durable boolean) RETURNS void
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

-- --- gates --------------------------------------------------------------------------------------

-- How long tokens take to refill, in microseconds: Rate.span in core/limit.py. A debt has an end.
CREATE FUNCTION span_of(p_spacing bigint, p_tokens float8) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT ceil(least(p_spacing::float8 * p_tokens, 3155760000000000::float8))::bigint
$$;

-- What the running rows say; no further than to p_most, which is enough to know.
CREATE FUNCTION gate_usage(p_gate text, p_most bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT count(*) FROM (
            SELECT 1 FROM holds h JOIN jobs j ON j.seq = h.seq
             WHERE h.gate = p_gate AND j.claim_number = h.claim_number AND j.state + 0 = 1
             LIMIT p_most
        ) AS running
    );
END $$;

-- The bucket of a gate, as admit() in core/limit.py: opens_at, when it holds p_cost, NULL if it
-- does now; then spent_until, what to store when they are taken. Nothing where there is no rate.
CREATE FUNCTION ask_bucket(
    p_gate text, p_cost float8, p_now bigint, OUT opens_at bigint, OUT spent_until bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    v_limit limits;
    v_full bigint;
    v_room bigint;
BEGIN
    SELECT * INTO v_limit FROM limits WHERE name = split_part(p_gate, ':', 1);
    IF v_limit.spacing IS NULL THEN
        RETURN;
    END IF;
    SELECT g.spent_until INTO v_full FROM gates g WHERE g.gate = p_gate;
    v_full := greatest(coalesce(v_full, p_now), p_now);
    v_room := v_limit.burst_span - CASE WHEN p_cost >= v_limit.burst THEN v_limit.burst_span
                                        ELSE span_of(v_limit.spacing, p_cost) END;
    IF v_full - p_now > v_room THEN
        opens_at := v_full - v_room;
    ELSE
        spent_until := v_full + span_of(v_limit.spacing, p_cost);
    END IF;
END $$;

-- What keeps a job with these limits from starting; gate NULL: nothing. A missing unit comes
-- first (cost -1, no instant), because nobody knows when it returns; then the tokens that take
-- longest.
CREATE FUNCTION find_shut(
    p_gates text[], p_costs float8[], p_now bigint,
    OUT gate text, OUT cost float8, OUT opens_at bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    v_most bigint;
    v_opens_at bigint;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(p_gates), 0) LOOP
        SELECT l.concurrency INTO v_most FROM limits l
         WHERE l.name = split_part(p_gates[i], ':', 1);
        IF v_most IS NOT NULL AND gate_usage(p_gates[i], v_most) >= v_most THEN
            gate := p_gates[i];
            cost := -1;
            opens_at := NULL;
            RETURN;
        END IF;
        SELECT a.opens_at INTO v_opens_at FROM ask_bucket(p_gates[i], p_costs[i], p_now) a;
        IF v_opens_at IS NOT NULL AND (gate IS NULL OR v_opens_at > opens_at) THEN
            gate := p_gates[i];
            cost := p_costs[i];
            opens_at := v_opens_at;
        END IF;
    END LOOP;
END $$;

-- Take from every gate for a claim that starts; none of them is shut.
CREATE FUNCTION charge_gates(
    p_gates text[], p_costs float8[], p_seq bigint, p_number integer, p_now bigint
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_spent bigint;
BEGIN
    FOR i IN 1 .. cardinality(p_gates) LOOP
        SELECT a.spent_until INTO v_spent FROM ask_bucket(p_gates[i], p_costs[i], p_now) a;
        -- A gate without a rate spends nothing; it is listed all the same.
        INSERT INTO gates AS g (gate, spent_until) VALUES (p_gates[i], v_spent)
        ON CONFLICT (gate) DO UPDATE SET spent_until = excluded.spent_until
         WHERE excluded.spent_until IS NOT NULL;
        INSERT INTO holds AS h (gate, seq, claim_number) VALUES (p_gates[i], p_seq, p_number)
        ON CONFLICT (gate, seq) DO UPDATE SET claim_number = excluded.claim_number;
    END LOOP;
END $$;

-- --- lanes and the bays they stand in -----------------------------------------------------------

CREATE FUNCTION find_bay(p_queue text, p_gate text, p_cost float8) RETURNS bigint
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
CREATE FUNCTION find_lane(p_queue text, p_gates text[]) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
CREATE FUNCTION settle_bay(p_bay bigint) RETURNS void
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
-- head was refused for that reason (as `find_shut` says), and the lane waits in that bay.
CREATE FUNCTION settle_lane(
    p_lane bigint, p_gate text DEFAULT NULL, p_cost float8 DEFAULT NULL,
    p_opens_at bigint DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
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
               IS DISTINCT FROM (v_head.priority, v_head.due, v_head.seq);
    v_bay := v_lane.bay;
    IF p_gate IS NOT NULL THEN
        IF (p_gate, p_cost) <> (v_lane.gate, v_lane.cost) THEN
            v_bay := find_bay(v_lane.queue, p_gate, p_cost);
        END IF;
        UPDATE bays SET opens_at = p_opens_at WHERE id = v_bay;
    ELSIF v_moved AND v_lane.cost <> -1 THEN
        -- Another job is at the head and may need fewer tokens: nobody has asked yet.
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
CREATE FUNCTION open_gates(p_gates text[]) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    UPDATE bays SET opens_at = 0 WHERE gate = ANY (p_gates) AND opens_at IS NULL;
END $$;

-- The numbers of a limit have changed: whoever waits for it may ask again. All of its gates: the
-- one without a key, and those whose names go on with a colon.
CREATE FUNCTION open_limit(p_name text) RETURNS void
LANGUAGE sql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
    UPDATE bays SET opens_at = 0
     WHERE gate = p_name OR (gate >= p_name || ':' AND gate < p_name || ';')
$$;

-- Gates were charged: bays that wait for their tokens open later than they thought. So many of
-- each; the others find out when their old instant comes: too early a look costs a visit.
CREATE FUNCTION postpone_bays(p_gates text[], p_now bigint) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_bay record;
    v_opens_at bigint;
BEGIN
    FOR v_bay IN
        SELECT timed.id, timed.gate, timed.cost
          FROM (SELECT DISTINCT g FROM unnest(p_gates) g) AS charged,
               LATERAL (SELECT t.id, t.gate, t.cost FROM bays t
                         WHERE t.gate = charged.g AND t.opens_at > 0
                         ORDER BY t.opens_at LIMIT 64) AS timed
    LOOP
        SELECT a.opens_at INTO v_opens_at FROM ask_bucket(v_bay.gate, v_bay.cost, p_now) a;
        IF v_opens_at IS NOT NULL THEN
            UPDATE bays SET opens_at = v_opens_at WHERE id = v_bay.id;
        END IF;
    END LOOP;
END $$;

-- --- limits -------------------------------------------------------------------------------------

-- Store definitions (arrays side by side, columns of `limits`); the answer: how many were news.
CREATE FUNCTION define_limits(
    p_durable boolean, p_names text[], p_specs text[], p_spacings bigint[], p_bursts bigint[],
    p_burst_spans bigint[], p_concurrencies bigint[]
) RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_changed integer := 0;
BEGIN
    -- Every app defines its limits when it starts; most often nothing has changed.
    IF NOT EXISTS (
        SELECT 1 FROM unnest(p_names, p_specs) AS t (name, spec)
         WHERE NOT EXISTS (SELECT 1 FROM limits l WHERE l.name = t.name AND l.spec = t.spec)
    ) THEN
        RETURN 0;
    END IF;
    PERFORM commit_durably(p_durable);
    PERFORM lock_lanes();
    FOR i IN 1 .. cardinality(p_names) LOOP
        INSERT INTO limits AS l (name, spec, spacing, burst, burst_span, concurrency)
        VALUES (p_names[i], p_specs[i], p_spacings[i], p_bursts[i], p_burst_spans[i],
                p_concurrencies[i])
        ON CONFLICT (name) DO UPDATE
           SET spec = excluded.spec, spacing = excluded.spacing, burst = excluded.burst,
               burst_span = excluded.burst_span, concurrency = excluded.concurrency
         WHERE l.spec <> excluded.spec;
        IF FOUND THEN
            v_changed := v_changed + 1;
            PERFORM open_limit(p_names[i]);
        END IF;
    END LOOP;
    RETURN v_changed;
END $$;

-- The budgets of one limit that are in use or were, by gate. Lanes in closed bays are parked.
CREATE FUNCTION limit_states(p_name text)
RETURNS TABLE (gate text, running bigint, spent_until bigint, parked bigint)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    SELECT g.gate, gate_usage(g.gate, NULL), g.spent_until,
           (SELECT count(*) FROM bays b JOIN lanes l ON l.bay = b.id
             WHERE b.gate = g.gate AND b.opens_at IS DISTINCT FROM 0)
      FROM gates g
     WHERE g.gate = p_name OR (g.gate >= p_name || ':' AND g.gate < p_name || ';')
     ORDER BY g.gate
$$;

-- Drop gates that are as if they had never been used, among the next p_limit by name after
-- p_after. The answer is where to go on; NULL: this was the last bite.
CREATE FUNCTION forget_gates(p_at timestamptz, p_after text, p_limit integer) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_now bigint;
    v_seen integer;
    v_last text;
BEGIN
    PERFORM lock_lanes();
    v_now := us_of(coalesce(p_at, clock_timestamp()));
    WITH bite AS MATERIALIZED (
        SELECT g.gate, g.spent_until FROM gates g WHERE g.gate > p_after
         ORDER BY g.gate LIMIT p_limit
    ), gone AS (
        DELETE FROM gates g USING bite b
         WHERE g.gate = b.gate AND coalesce(b.spent_until, 0) <= v_now
           AND gate_usage(b.gate, 1) = 0
    )
    SELECT count(*), max(b.gate) INTO v_seen, v_last FROM bite b;
    RETURN CASE WHEN v_seen = p_limit THEN v_last END;
END $$;
