-- Storing jobs with limits: straight into their lanes.

-- Limits of jobs as they travel, side by side, as the columns of `jobs`: texts of arrays; NULL for none.
CREATE OR REPLACE FUNCTION read_limits(p_limits text[], OUT gates text[], OUT costs text[])
LANGUAGE plpgsql AS $$
DECLARE
    -- Most batches have the same limits throughout: these are read once.
    v_alike boolean := (SELECT bool_and(t.limits IS NOT DISTINCT FROM p_limits[1])
                          FROM unnest(p_limits) AS t (limits));
BEGIN
    -- Nothing is sorted here: elements and rows come in their order.
    SELECT array_agg(r.gates::text), array_agg(r.costs::text) INTO gates, costs
      FROM unnest(CASE WHEN v_alike THEN p_limits[1 : 1] ELSE p_limits END) AS t (limits)
     CROSS JOIN LATERAL (
           SELECT array_agg(u.use ->> 0) AS gates, array_agg((u.use ->> 1)::float8) AS costs
             FROM json_array_elements(t.limits::json) AS u (use)) AS r;
    IF v_alike THEN
        gates := array_fill(gates[1], ARRAY[cardinality(p_limits)]);
        costs := array_fill(costs[1], ARRAY[cardinality(p_limits)]);
    END IF;
END $$;

-- The names of the limits of these gates, texts of arrays.
CREATE OR REPLACE FUNCTION limits_in(p_gates text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    -- Most have one gate, whose name comes first: only the others are read as arrays.
    RETURN ARRAY(SELECT split_part(btrim(t.gates, '{}"'), ':', 1) FROM unnest(p_gates) AS t (gates)
                  WHERE strpos(t.gates, ',') = 0
                 UNION
                 SELECT split_part(g, ':', 1)
                   FROM (SELECT DISTINCT u.gates FROM unnest(p_gates) AS u (gates)
                          WHERE strpos(u.gates, ',') > 0) AS t, unnest(t.gates::text[]) AS g);
END $$;

-- The lanes of new jobs, side by side; NULL for one that has no limits or is due later. The caller stores
-- the jobs and settles the lanes that are unsettled then.
CREATE OR REPLACE FUNCTION lanes_for(
    p_now timestamptz, p_queues text[], p_gates text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], OUT lanes bigint[], OUT unsettled bigint[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_due record;
    v_found record;
BEGIN
    SELECT array_agg(t.n::integer) AS places, array_agg(t.queue) AS queues,
           array_agg(t.gates) AS gates, array_agg(t.priority) AS priorities,
           array_agg(t.due) AS dues, min(t.priority) AS priority, min(t.due) AS due,
           bool_and(t.queue = p_queues[1] AND t.gates = p_gates[1]) AS alike
      INTO v_due
      FROM (SELECT u.n, u.queue, u.gates, u.priority,
                   coalesce(u.asked, after(p_now, u.delay), p_now) AS due
              FROM unnest(p_queues, p_gates, p_priorities, p_dues, p_delays)
                   WITH ORDINALITY AS u (queue, gates, priority, asked, delay, n)
             WHERE u.gates IS NOT NULL OFFSET 0) AS t
     WHERE t.due <= p_now;
    IF v_due.places IS NULL THEN
        RETURN;
    END IF;
    IF v_due.alike THEN
        SELECT f.* INTO v_found FROM find_lanes(
            p_queues[1 : 1], p_gates[1 : 1], ARRAY[v_due.priority], ARRAY[v_due.due]) AS f;
        v_found.lanes := array_fill(v_found.lanes[1], ARRAY[cardinality(v_due.places)]);
    ELSE
        SELECT f.* INTO v_found
          FROM find_lanes(v_due.queues, v_due.gates, v_due.priorities, v_due.dues) AS f;
    END IF;
    unsettled := v_found.unsettled;
    lanes := v_found.lanes;
    IF cardinality(lanes) < cardinality(p_queues) THEN
        lanes := array_fill(NULL::bigint, ARRAY[cardinality(p_queues)]);
        FOR i IN 1 .. cardinality(v_due.places) LOOP
            lanes[v_due.places[i]] := v_found.lanes[i];
        END LOOP;
    END IF;
END $$;

-- `insert_jobs` for jobs that carry limits and nothing else special: every column and every parameter
-- costs. p_strict, p_repeats and the answer are the same.
CREATE OR REPLACE FUNCTION insert_limited_jobs(
    p_at timestamptz, p_durable boolean,
    p_ids uuid[], p_queues text[], p_tasks text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], p_max_attempts integer[], p_payloads bytea[],
    p_limits text[], p_strict boolean, p_repeats boolean
) RETURNS TABLE (place integer, holder text, replaced boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_limits record;
    v_names text[];
    v_lanes record;
    v_stored bigint;
BEGIN
    PERFORM commit_durably(p_durable);
    SELECT r.gates, r.costs INTO v_limits FROM read_limits(p_limits) AS r;
    v_names := limits_in(v_limits.gates);
    PERFORM require_limits(v_names);
    PERFORM lock_limits(v_names);
    SELECT f.lanes, f.unsettled INTO v_lanes
      FROM lanes_for(v_now, p_queues, v_limits.gates, p_priorities, p_dues, p_delays) AS f;
    INSERT INTO jobs (id, ready, lane, priority, due, created_at, max_attempts, budget, queue, task,
                      gates, costs, payload)
    SELECT t.id, CASE WHEN t.lane IS NOT NULL THEN 2
                      WHEN t.due <= v_now AND t.gates IS NULL THEN 1 ELSE 0 END,
           t.lane, t.priority, t.due, v_now, t.max_attempts, t.max_attempts, t.queue, t.task,
           t.gates::text[], t.costs::float8[], t.payload
      FROM (SELECT u.*, coalesce(u.asked, after(v_now, u.delay), v_now) AS due
              FROM unnest(p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays,
                          p_max_attempts, p_payloads, v_limits.gates, v_limits.costs,
                          v_lanes.lanes) WITH ORDINALITY
                AS u (id, queue, task, priority, asked, delay, max_attempts, payload, gates, costs,
                      lane, n)
            OFFSET 0) AS t
     ORDER BY t.n
    ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS v_stored = ROW_COUNT;
    IF v_lanes.unsettled IS NOT NULL THEN
        PERFORM settle_lanes(v_lanes.unsettled);
    END IF;
    IF v_stored < cardinality(p_ids) THEN
        IF p_strict THEN
            PERFORM refuse_other_calls(p_ids, p_tasks, p_payloads, NULL);
        END IF;
        IF p_repeats THEN
            RETURN QUERY SELECT b.place, b.holder, b.replaced FROM stored_before(p_ids) AS b;
        END IF;
    END IF;
END $$;
