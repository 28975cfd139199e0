-- Instants, and lanes: where limited jobs wait. Functions for functions: none of these is a separate
-- transaction. Callers hold the locks of the limits (05_locks.sql).

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

-- The lanes of jobs, side by side with their queues and gates (texts of arrays); those that are missing
-- are made. A lane without jobs goes when it is settled: the caller settles all of them.
--
-- Within its queue a lane is known by a digest of its gates, each once, in order.
CREATE OR REPLACE FUNCTION find_lanes(p_queues text[], p_gates text[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_digests bytea[];
    v_lanes bigint[];
BEGIN
    v_digests := ARRAY(
        SELECT sha256(convert_to(
                   CASE WHEN strpos(t.gates, ',') = 0 THEN t.gates
                        ELSE (SELECT array_agg(DISTINCT g COLLATE "C" ORDER BY g COLLATE "C")::text
                                FROM unnest(t.gates::text[]) AS g) END, 'UTF8'))
          FROM unnest(p_gates) WITH ORDINALITY AS t (gates, n) ORDER BY t.n);
    FOR look IN 1 .. 2 LOOP
        v_lanes := ARRAY(
            SELECT (SELECT l.id FROM lanes l WHERE l.queue = t.queue AND l.digest = t.digest)
              FROM unnest(p_queues, v_digests) WITH ORDINALITY AS t (queue, digest, n)
             ORDER BY t.n);
        EXIT WHEN array_position(v_lanes, NULL) IS NULL;
        PERFORM make_lanes(p_queues, p_gates, v_digests, v_lanes);
    END LOOP;
    RETURN v_lanes;
END $$;

-- Make the missing ones (NULL in p_lanes), each in the bay of its first gate. Their heads follow when they
-- are settled.
CREATE OR REPLACE FUNCTION make_lanes(
    p_queues text[], p_gates text[], p_digests bytea[], p_lanes bigint[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_new record;
BEGIN
    SELECT array_agg(m.queue) AS queues, array_agg(m.gates) AS gates,
           array_agg((m.gates::text[])[1]) AS firsts, array_agg(m.digest) AS digests,
           array_agg(-1::float8) AS costs
      INTO v_new
      FROM (SELECT DISTINCT ON (t.queue, t.digest) t.queue, t.gates, t.digest
              FROM unnest(p_queues, p_gates, p_digests, p_lanes)
                   WITH ORDINALITY AS t (queue, gates, digest, lane, n)
             WHERE t.lane IS NULL
             ORDER BY t.queue, t.digest, t.n) AS m;
    PERFORM note_lane_limits(v_new.queues, v_new.gates);
    PERFORM make_bays(v_new.queues, v_new.firsts, v_new.costs);
    INSERT INTO lanes (queue, digest, bay, head_priority, head_due, head_seq)
    SELECT t.queue, t.digest,
           (SELECT b.id FROM bays b WHERE b.queue = t.queue AND b.gate = t.gate AND b.cost = -1),
           0, 'infinity', 0
      FROM unnest(v_new.queues, v_new.firsts, v_new.digests) AS t (queue, gate, digest);
END $$;

-- Claims on these queues lock the limits of these gates (texts of arrays) from now on.
CREATE OR REPLACE FUNCTION note_lane_limits(p_queues text[], p_gates text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lane_limits (queue, name)
    SELECT n.queue, n.name
      FROM (SELECT DISTINCT t.queue, split_part(g, ':', 1) AS name
              FROM unnest(p_queues, p_gates) AS t (queue, gates), unnest(t.gates::text[]) AS g) AS n
     WHERE NOT EXISTS (SELECT 1 FROM lane_limits o WHERE o.queue = n.queue AND o.name = n.name)
     ORDER BY n.queue, n.name
    ON CONFLICT DO NOTHING;
END $$;

CREATE OR REPLACE FUNCTION make_bays(p_queues text[], p_gates text[], p_costs float8[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO bays (queue, gate, cost, head_priority, head_due, head_seq)
    SELECT DISTINCT t.queue, t.gate, t.cost, 0, timestamptz 'infinity', 0
      FROM unnest(p_queues, p_gates, p_costs) AS t (queue, gate, cost)
    ON CONFLICT (queue, gate, cost) DO NOTHING;
END $$;

-- Make bays follow their lanes. Those without one go.
CREATE OR REPLACE FUNCTION settle_bays(p_bays bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bays b SET head_priority = h.head_priority, head_due = h.head_due,
                      head_seq = h.head_seq
      FROM unnest(p_bays) AS t (bay)
     CROSS JOIN LATERAL (SELECT l.head_priority, l.head_due, l.head_seq FROM lanes l
                          WHERE l.bay = t.bay
                          ORDER BY l.head_priority, l.head_due, l.head_seq LIMIT 1) AS h
     WHERE b.id = t.bay AND (b.head_priority, b.head_due, b.head_seq)
           IS DISTINCT FROM (h.head_priority, h.head_due, h.head_seq);
    DELETE FROM bays b
     WHERE b.id = ANY (ARRAY(
               SELECT t.bay FROM unnest(p_bays) AS t (bay)
                WHERE NOT EXISTS (SELECT 1 FROM lanes l WHERE l.bay = t.bay)));
END $$;

-- Make lanes follow their jobs: their heads are read from these, so they cannot drift. Each lane is named
-- once. Beside it, where its head was refused: the reason (as `judge_jobs` says), and the lane waits in
-- that bay, which opens at p_opens_ats. Cost -2: not refused, but locked, perhaps in a transaction of the
-- user's that stays open.
-- p_news: jobs that have just come, which have not asked yet, even where one like it stood.
CREATE OR REPLACE FUNCTION settle_lanes(
    p_lanes bigint[], p_gates text[] DEFAULT NULL, p_costs float8[] DEFAULT NULL,
    p_opens_ats bigint[] DEFAULT NULL, p_news bigint[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_empty bigint[];
    v_moved record;
    v_bays bigint[];
BEGIN
    WITH looked AS MATERIALIZED (
        SELECT l.id, l.queue, l.bay, b.gate AS old_gate, b.cost AS old_cost,
               t.gate IS NOT NULL AS refused, h.priority, h.due, h.seq,
               (l.head_priority, l.head_due, l.head_seq)
                   IS DISTINCT FROM (h.priority, h.due, h.seq)
                   OR coalesce(h.seq = ANY (p_news), false) AS moved,
               t.gate, t.cost
          FROM unnest(p_lanes, p_gates, p_costs) AS t (lane, gate, cost)
          JOIN lanes l ON l.id = t.lane
          JOIN bays b ON b.id = l.bay
          LEFT JOIN LATERAL (SELECT j.priority, j.due, j.seq FROM jobs j
                              WHERE j.lane = l.id AND j.ready = 2
                              ORDER BY j.priority, j.due, j.seq LIMIT 1) AS h ON true
    ), aimed AS (
        -- Where another job is at the head, it may need fewer tokens: it has not asked yet.
        SELECT k.*, CASE WHEN k.refused THEN k.gate ELSE k.old_gate END AS new_gate,
               CASE WHEN k.refused THEN k.cost WHEN k.moved THEN -1 ELSE k.old_cost END AS new_cost
          FROM looked k
    ), changed AS (
        SELECT a.*, (a.new_gate, a.new_cost) <> (a.old_gate, a.old_cost) AS leaves FROM aimed a
         WHERE a.seq IS NULL OR a.moved OR (a.new_gate, a.new_cost) <> (a.old_gate, a.old_cost)
    )
    SELECT array_agg(c.id) FILTER (WHERE c.seq IS NULL) AS empty,
           array_agg(DISTINCT c.bay) AS bays,
           array_agg(c.id) FILTER (WHERE c.seq IS NOT NULL) AS ids,
           array_agg(c.queue) FILTER (WHERE c.seq IS NOT NULL) AS queues,
           array_agg(c.new_gate) FILTER (WHERE c.seq IS NOT NULL) AS gates,
           array_agg(c.new_cost) FILTER (WHERE c.seq IS NOT NULL) AS costs,
           array_agg(c.priority) FILTER (WHERE c.seq IS NOT NULL) AS priorities,
           array_agg(c.due) FILTER (WHERE c.seq IS NOT NULL) AS dues,
           array_agg(c.seq) FILTER (WHERE c.seq IS NOT NULL) AS seqs,
           coalesce(bool_or(c.leaves AND c.seq IS NOT NULL), false) AS leave
      INTO v_moved FROM changed c;
    IF v_moved.empty IS NOT NULL THEN
        DELETE FROM lanes WHERE id = ANY (v_moved.empty);
    END IF;
    v_bays := v_moved.bays;
    IF v_moved.ids IS NOT NULL THEN
        IF v_moved.leave THEN
            PERFORM make_bays(v_moved.queues, v_moved.gates, v_moved.costs);
        END IF;
        WITH led AS (
            UPDATE lanes l
               SET bay = (SELECT b.id FROM bays b
                           WHERE b.queue = t.queue AND b.gate = t.gate AND b.cost = t.cost),
                   head_priority = t.priority, head_due = t.due, head_seq = t.seq
              FROM unnest(v_moved.ids, v_moved.queues, v_moved.gates, v_moved.costs,
                          v_moved.priorities, v_moved.dues, v_moved.seqs)
                   AS t (id, queue, gate, cost, priority, due, seq)
             WHERE l.id = t.id
            RETURNING l.bay
        )
        SELECT array_agg(DISTINCT o.bay) INTO v_bays
          FROM (SELECT led.bay FROM led UNION ALL SELECT unnest(v_bays)) AS o (bay);
    END IF;
    IF v_bays IS NOT NULL THEN
        PERFORM settle_bays(v_bays);
    END IF;
    IF p_gates IS NOT NULL THEN
        UPDATE bays b SET opens_at = r.opens_at
          FROM (SELECT l.bay, max(t.opens_at) AS opens_at
                  FROM unnest(p_lanes, p_gates, p_opens_ats) AS t (lane, gate, opens_at)
                  JOIN lanes l ON l.id = t.lane
                 WHERE t.gate IS NOT NULL GROUP BY l.bay) AS r
         WHERE b.id = r.bay;
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
BEGIN
    UPDATE bays b SET opens_at = a.opens_at
      FROM (SELECT DISTINCT g FROM unnest(p_gates) g) AS charged
     CROSS JOIN LATERAL (SELECT t.id, t.gate, t.cost FROM bays t
                          WHERE t.gate = charged.g AND t.opens_at > 0 AND t.cost >= 0
                          ORDER BY t.opens_at LIMIT 64) AS timed
     CROSS JOIN LATERAL ask_bucket(timed.gate, timed.cost, p_now) AS a
     WHERE b.id = timed.id AND a.opens_at IS NOT NULL;
END $$;
