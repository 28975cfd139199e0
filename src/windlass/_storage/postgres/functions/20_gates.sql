-- Gates: the budgets jobs count against, and the limits that define them.

-- --- gates --------------------------------------------------------------------------------------

-- Refuse names of undefined limits: WL001, the name as the detail.
CREATE OR REPLACE FUNCTION require_limits(p_names text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_unknown text;
BEGIN
    SELECT min(n.name) INTO v_unknown FROM unnest(p_names) AS n (name)
     WHERE NOT EXISTS (SELECT 1 FROM limits l WHERE l.name = n.name);
    IF v_unknown IS NOT NULL THEN
        RAISE EXCEPTION 'the limit % is named, which nobody defined', v_unknown
            USING ERRCODE = 'WL001', DETAIL = v_unknown;
    END IF;
END $$;

-- The names in limits of jobs as they travel: JSON, [["gate", cost], ...].
CREATE OR REPLACE FUNCTION names_in(p_limits text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(DISTINCT split_part(u.use ->> 0, ':', 1))
      FROM unnest(p_limits) AS t (limits), json_array_elements(t.limits::json) AS u (use)
$$;

-- How long tokens take to refill, in microseconds: Rate.span in _core/limits/limit.py. A debt has
-- an end.
CREATE OR REPLACE FUNCTION span_of(p_spacing bigint, p_tokens float8) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT ceil(least(p_spacing::float8 * p_tokens, 3155760000000000::float8))::bigint
$$;

-- What the running rows say; no further than to p_most, which is enough to know.
CREATE OR REPLACE FUNCTION gate_usage(p_gate text, p_most bigint) RETURNS bigint
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

-- The bucket of a gate, as admit() in _core/limits/limit.py: opens_at, when it holds p_cost, NULL if
-- it does now; then spent_until, what to store when they are taken. Nothing where there is no rate.
CREATE OR REPLACE FUNCTION ask_bucket(
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

-- What keeps a job with these limits from starting; gate NULL: nothing. A missing unit, or the one
-- run that a breaker lets through, comes first (cost -1, no instant), because no one knows when it
-- ends; then the breaker (cost -1) or the tokens that take longest.
CREATE OR REPLACE FUNCTION find_shut(
    p_gates text[], p_costs float8[], p_now bigint,
    OUT gate text, OUT cost float8, OUT opens_at bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    v_most bigint;
    v_failures bigint;
    v_opens_at bigint;
    v_cost float8;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(p_gates), 0) LOOP
        SELECT l.concurrency, l.failures INTO v_most, v_failures FROM limits l
         WHERE l.name = split_part(p_gates[i], ':', 1);
        v_opens_at := NULL;
        v_cost := p_costs[i];
        IF v_failures IS NOT NULL THEN
            SELECT coalesce(g.open_until, 0) INTO v_opens_at FROM gates g
             WHERE g.gate = p_gates[i] AND g.failures >= v_failures;
            IF v_opens_at <= p_now THEN
                v_opens_at := NULL;
                v_most := 1;
            END IF;
            v_cost := -1;
        ELSE
            SELECT a.opens_at INTO v_opens_at FROM ask_bucket(p_gates[i], p_costs[i], p_now) a;
        END IF;
        IF v_most IS NOT NULL AND gate_usage(p_gates[i], v_most) >= v_most THEN
            gate := p_gates[i];
            cost := -1;
            opens_at := NULL;
            RETURN;
        END IF;
        IF v_opens_at IS NOT NULL AND (gate IS NULL OR v_opens_at > opens_at) THEN
            gate := p_gates[i];
            cost := v_cost;
            opens_at := v_opens_at;
        END IF;
    END LOOP;
END $$;

-- Whether the clock was set back since something was taken: CLOCK_SLACK in _core/limits/limit.py.
CREATE OR REPLACE FUNCTION is_set_back(p_now bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM marks m WHERE m.name = 'charged' AND m.at > p_now + 1000000);
END $$;

-- By how much, in microseconds.
CREATE OR REPLACE FUNCTION set_back_by(p_now bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT m.at - p_now FROM marks m WHERE m.name = 'charged' AND is_set_back(p_now)), 0);
END $$;

-- Something was taken now. Where another transaction writes the row, that one writes about the same
-- instant, and is not waited for. A clock that was set back is left for `mend_gates` to see.
CREATE OR REPLACE FUNCTION mark_charged(p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE marks SET at = p_now
     WHERE name = ANY (ARRAY(SELECT m.name FROM marks m
                              WHERE m.name = 'charged' AND m.at <= p_now + 1000000
                                FOR UPDATE SKIP LOCKED));
    IF NOT FOUND AND NOT EXISTS (SELECT 1 FROM marks m WHERE m.name = 'charged') THEN
        INSERT INTO marks (name, at) VALUES ('charged', p_now) ON CONFLICT (name) DO NOTHING;
    END IF;
END $$;

-- The instant from which a wait counts that begins now. By a clock that was set back it is the last
-- one that counted: `mend_gates` moves it with all others.
CREATE OR REPLACE FUNCTION reckon_from(p_now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := greatest(p_now, (SELECT m.at FROM marks m WHERE m.name = 'charged'));
BEGIN
    PERFORM mark_charged(v_at);
    RETURN v_at;
END $$;

-- After the clock was set back every gate, and every queue that cools down, is as it was when something was
-- taken last. The caller has called `lock_all_limits`.
CREATE OR REPLACE FUNCTION mend_gates(p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_back bigint := set_back_by(p_now);
BEGIN
    IF v_back > 0 THEN
        UPDATE gates SET spent_until = spent_until - v_back, open_until = open_until - v_back;
        UPDATE bays SET opens_at = 0 WHERE opens_at > 0;
        UPDATE queues SET cool_until = cool_until - v_back * interval '1 microsecond'
         WHERE cool_until IS NOT NULL;
        UPDATE marks SET at = p_now WHERE name = 'charged';
    END IF;
END $$;

-- Take from every gate for a claim that starts; none of them is shut.
CREATE OR REPLACE FUNCTION charge_gates(
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

-- Nothing is left in these buckets. A debt is not forgiven: drained() in _core/limits/limit.py.
CREATE OR REPLACE FUNCTION drain_gates(p_gates text[], p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_span bigint;
    v_at bigint;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(p_gates), 0) LOOP
        SELECT l.burst_span INTO v_span FROM limits l
         WHERE l.name = split_part(p_gates[i], ':', 1);
        CONTINUE WHEN v_span IS NULL;
        v_at := coalesce(v_at, reckon_from(p_now));
        INSERT INTO gates AS g (gate, spent_until) VALUES (p_gates[i], v_at + v_span)
        ON CONFLICT (gate) DO UPDATE
           SET spent_until = greatest(g.spent_until, excluded.spent_until);
    END LOOP;
    PERFORM postpone_bays(p_gates, p_now);
END $$;

-- --- breakers -----------------------------------------------------------------------------------

-- A run that draws on these has failed: tripped() in _core/limits/breaker.py. Once, however often it names
-- one of them.
CREATE OR REPLACE FUNCTION trip_breakers(p_gates text[], p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_limit record;
    v_gate record;
    v_at bigint;
BEGIN
    p_gates := ARRAY(SELECT DISTINCT g FROM unnest(p_gates) AS g);
    FOR i IN 1 .. coalesce(cardinality(p_gates), 0) LOOP
        SELECT l.failures, l.waits INTO v_limit FROM limits l
         WHERE l.name = split_part(p_gates[i], ':', 1);
        CONTINUE WHEN v_limit.failures IS NULL;
        v_at := coalesce(v_at, reckon_from(p_now));
        INSERT INTO gates AS g (gate, failures) VALUES (p_gates[i], 1)
        ON CONFLICT (gate) DO UPDATE SET failures = g.failures + 1
        RETURNING g.failures, g.opened, g.open_until INTO v_gate;
        -- Those that end while it is open count, and do not prolong it.
        IF v_gate.failures >= v_limit.failures AND (v_gate.open_until > v_at) IS NOT TRUE THEN
            UPDATE gates g
               SET opened = g.opened + 1,
                   open_until = v_at
                       + v_limit.waits[least(g.opened + 1, cardinality(v_limit.waits))]
             WHERE g.gate = p_gates[i];
        END IF;
    END LOOP;
END $$;

-- A run that draws on these has succeeded: breakers among them close, and lanes that wait for them
-- may ask again. Where nothing failed nothing is written.
CREATE OR REPLACE FUNCTION close_breakers(p_gates text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_closed text[];
BEGIN
    WITH closed AS (
        UPDATE gates g SET failures = 0, opened = 0, open_until = NULL
         WHERE g.gate = ANY (p_gates) AND g.failures > 0
        RETURNING g.gate
    )
    SELECT array_agg(c.gate) INTO v_closed FROM closed c;
    IF v_closed IS NOT NULL THEN
        UPDATE bays b SET opens_at = 0 WHERE b.gate = ANY (v_closed);
    END IF;
END $$;

-- --- limits -------------------------------------------------------------------------------------

-- Store definitions (arrays side by side, columns of `limits`, p_waits as texts of arrays); the
-- answer: how many were news.
CREATE OR REPLACE FUNCTION define_limits(
    p_durable boolean, p_names text[], p_specs text[], p_spacings bigint[], p_bursts bigint[],
    p_burst_spans bigint[], p_concurrencies bigint[], p_failures bigint[] DEFAULT NULL,
    p_waits text[] DEFAULT NULL, p_at timestamptz DEFAULT NULL, p_audit text DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_changed integer := 0;
    v_now bigint;
    v_old limits;
BEGIN
    -- Every app defines its limits when it starts; most often nothing has changed.
    IF NOT EXISTS (
        SELECT 1 FROM unnest(p_names, p_specs) AS t (name, spec)
         WHERE NOT EXISTS (SELECT 1 FROM limits l WHERE l.name = t.name AND l.spec = t.spec)
    ) THEN
        PERFORM keep_audit(p_audit, coalesce(p_at, clock_timestamp()), cardinality(p_names));
        RETURN 0;
    END IF;
    PERFORM commit_durably(p_durable);
    PERFORM lock_limits(p_names);
    v_now := us_of(coalesce(p_at, clock_timestamp()));
    FOR i IN 1 .. cardinality(p_names) LOOP
        SELECT * INTO v_old FROM limits l WHERE l.name = p_names[i];
        CONTINUE WHEN v_old.spec = p_specs[i];
        INSERT INTO limits (name, spec, spacing, burst, burst_span, concurrency, failures, waits)
        VALUES (p_names[i], p_specs[i], p_spacings[i], p_bursts[i], p_burst_spans[i],
                p_concurrencies[i], p_failures[i], p_waits[i]::bigint[])
        ON CONFLICT (name) DO UPDATE
           SET spec = excluded.spec, spacing = excluded.spacing, burst = excluded.burst,
               burst_span = excluded.burst_span, concurrency = excluded.concurrency,
               failures = excluded.failures, waits = excluded.waits;
        v_changed := v_changed + 1;
        IF v_old.spacing IS NOT NULL AND p_spacings[i] IS NOT NULL
           AND (v_old.spec::json -> 'rate')::text <> (p_specs[i]::json -> 'rate')::text THEN
            -- What is owed are tokens, not time: owed() in _core/limits/limit.py.
            UPDATE gates g
               SET spent_until = v_now + span_of(p_spacings[i], (g.spent_until - v_now)::float8
                                                                / v_old.spacing::float8)
             WHERE (g.gate = p_names[i]
                    OR (g.gate >= p_names[i] || ':' AND g.gate < p_names[i] || ';'))
               AND g.spent_until > v_now;
        END IF;
        PERFORM open_limit(p_names[i]);
    END LOOP;
    PERFORM keep_audit(p_audit, coalesce(p_at, clock_timestamp()), cardinality(p_names));
    RETURN v_changed;
END $$;

-- One budget of a limit: its bucket is emptied, or (p_full) filled and its breaker closed. A limit
-- that is not defined: WL001.
CREATE OR REPLACE FUNCTION set_gate(
    p_at timestamptz, p_durable boolean, p_name text, p_gate text, p_full boolean,
    p_audit text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM commit_durably(p_durable);
    PERFORM lock_limits(ARRAY[p_name]);
    PERFORM require_limits(ARRAY[p_name]);
    IF p_full THEN
        UPDATE gates g SET spent_until = NULL, failures = 0, opened = 0, open_until = NULL
         WHERE g.gate = p_gate;
        UPDATE bays b SET opens_at = 0 WHERE b.gate = p_gate;
    ELSE
        PERFORM drain_gates(ARRAY[p_gate], us_of(coalesce(p_at, clock_timestamp())));
    END IF;
    IF p_full OR EXISTS (SELECT 1 FROM limits l WHERE l.name = p_name AND l.spacing IS NOT NULL) THEN
        PERFORM keep_audit(p_audit, coalesce(p_at, clock_timestamp()), 1);
    END IF;
END $$;

-- The budgets of one limit that are in use or were, by gate. Lanes in closed bays are parked.
CREATE OR REPLACE FUNCTION limit_states(p_name text)
RETURNS TABLE (gate text, running bigint, spent_until bigint, parked bigint, breaker boolean,
               failures bigint, opened bigint, open_until bigint)
LANGUAGE sql STABLE AS $$
    SELECT g.gate, gate_usage(g.gate, NULL), g.spent_until,
           (SELECT count(*) FROM bays b JOIN lanes l ON l.bay = b.id
             WHERE b.gate = g.gate AND b.opens_at IS DISTINCT FROM 0),
           (SELECT l.failures IS NOT NULL FROM limits l WHERE l.name = p_name),
           g.failures, g.opened, g.open_until
      FROM gates g
     WHERE g.gate = p_name OR (g.gate >= p_name || ':' AND g.gate < p_name || ';')
     ORDER BY g.gate
$$;

-- LimitStore.breakers: those of them that were ever used.
CREATE OR REPLACE FUNCTION breaker_states(p_names text[])
RETURNS TABLE (gate text, running bigint, failures bigint, opened bigint, open_until bigint)
LANGUAGE sql STABLE AS $$
    SELECT g.gate, gate_usage(g.gate, NULL), g.failures, g.opened, g.open_until
      FROM gates g WHERE g.gate = ANY (p_names)
$$;

-- Drop gates that are as if they had never been used, among the next p_limit by name after
-- p_after. The answer is the next cursor; NULL: this was the last chunk, and what is known of limits
-- that lanes needed once, and need no more, goes as well.
CREATE OR REPLACE FUNCTION forget_gates(p_at timestamptz, p_after text, p_limit integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_gates text[] := ARRAY(SELECT g.gate FROM gates g WHERE g.gate > p_after
                             ORDER BY g.gate LIMIT p_limit);
    v_last boolean := cardinality(v_gates) < p_limit;
    v_idle text[] := '{}';
BEGIN
    IF v_last THEN
        v_idle := ARRAY(SELECT DISTINCT l.name FROM lane_limits l
                         WHERE NOT EXISTS (SELECT 1 FROM lane_digests n WHERE n.queue = l.queue));
    END IF;
    PERFORM lock_limits(limits_of(v_gates) || v_idle);
    v_now := us_of(coalesce(p_at, clock_timestamp()));
    DELETE FROM gates g
     WHERE g.gate = ANY (v_gates) AND coalesce(g.spent_until, 0) <= v_now AND g.failures = 0
       AND gate_usage(g.gate, 1) = 0;
    IF v_last THEN
        DELETE FROM lane_limits l
         WHERE l.name = ANY (v_idle)
           AND NOT EXISTS (SELECT 1 FROM lane_digests n WHERE n.queue = l.queue);
        RETURN NULL;
    END IF;
    RETURN v_gates[p_limit];
END $$;
