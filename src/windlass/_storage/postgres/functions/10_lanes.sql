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
--
-- A lane without a bay is open: its head has not asked yet, or was started. One whose head was refused
-- stands in the bay of the gate that refused it, and stays there for as long as it needs that gate.

-- The lanes of jobs, side by side with their queues and gates (texts of arrays); those that are missing
-- are made. A lane without jobs goes when it is settled.
--   unsettled   those among them that are new, or whose head comes after one of these jobs. For jobs that
--               are stored next: p_priorities and p_dues. NULL: all of them
--
-- Within its queue a lane is known by a digest of its gates, each once, in order. It is looked up in
-- `lane_digests`: a lane is written with every claim, and no index of that row may be larger than it must.
CREATE OR REPLACE FUNCTION find_lanes(
    p_queues text[], p_gates text[], p_priorities integer[] DEFAULT NULL,
    p_dues timestamptz[] DEFAULT NULL, OUT lanes bigint[], OUT unsettled bigint[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_digests bytea[];
BEGIN
    v_digests := ARRAY(
        SELECT sha256(convert_to(
                   CASE WHEN strpos(t.gates, ',') = 0 THEN t.gates
                        ELSE (SELECT array_agg(DISTINCT g COLLATE "C" ORDER BY g COLLATE "C")::text
                                FROM unnest(t.gates::text[]) AS g) END, 'UTF8'))
          FROM unnest(p_gates) WITH ORDINALITY AS t (gates, n) ORDER BY t.n);
    FOR look IN 1 .. 2 LOOP
        -- Nothing is sorted: the rows come in the order of the lists.
        SELECT array_agg(l.id),
               array_agg(l.id) FILTER (WHERE p_dues IS NULL OR l.head_due = 'infinity'
                                  OR (t.priority, t.due) < (l.head_priority, l.head_due))
          INTO lanes, unsettled
          FROM unnest(p_queues, v_digests, p_priorities, p_dues) AS t (queue, digest, priority, due)
          LEFT JOIN LATERAL (
               SELECT l.id, l.head_priority, l.head_due
                 FROM lane_digests d JOIN lanes l ON l.id = d.lane
                WHERE d.queue = t.queue AND d.digest = t.digest LIMIT 1) AS l ON true;
        EXIT WHEN array_position(lanes, NULL) IS NULL;
        PERFORM make_lanes(p_queues, p_gates, v_digests, lanes);
    END LOOP;
    IF unsettled IS NOT NULL THEN
        unsettled := ARRAY(SELECT DISTINCT u FROM unnest(unsettled) AS u);
    END IF;
END $$;

-- Make the missing ones (NULL in p_lanes). Their heads follow when they are settled. Where the first gate
-- is known to have no unit left, the lane waits for it from the beginning.
CREATE OR REPLACE FUNCTION make_lanes(
    p_queues text[], p_gates text[], p_digests bytea[], p_lanes bigint[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_new record;
BEGIN
    SELECT array_agg(m.queue) AS queues, array_agg(m.gates) AS gates, array_agg(m.digest) AS digests
      INTO v_new
      FROM (SELECT DISTINCT ON (t.queue, t.digest) t.queue, t.gates, t.digest
              FROM unnest(p_queues, p_gates, p_digests, p_lanes)
                   WITH ORDINALITY AS t (queue, gates, digest, lane, n)
             WHERE t.lane IS NULL
             ORDER BY t.queue, t.digest, t.n) AS m;
    PERFORM note_lane_limits(v_new.queues, v_new.gates);
    WITH made AS (
        INSERT INTO lanes (queue, digest, bay, head_priority, head_due, head_seq)
        SELECT t.queue, t.digest,
               (SELECT b.id FROM bays b
                 WHERE b.queue = t.queue AND b.gate = (t.gates::text[])[1] AND b.cost = -1
                   AND b.opens_at IS DISTINCT FROM 0),
               0, 'infinity', 0
          FROM unnest(v_new.queues, v_new.gates, v_new.digests) AS t (queue, gates, digest)
        RETURNING id, queue, digest
    )
    INSERT INTO lane_digests (queue, digest, lane) SELECT m.queue, m.digest, m.id FROM made m
    -- A settling that the migration met may have left it behind.
    ON CONFLICT (queue, digest) DO UPDATE SET lane = excluded.lane;
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

-- Make bays follow their lanes. Those without one go.
CREATE OR REPLACE FUNCTION settle_bays(p_bays bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_heads record;
BEGIN
    SELECT array_agg(t.bay) FILTER (WHERE h.head_seq IS NULL) AS empty,
           array_agg(t.bay) AS bays, array_agg(h.head_priority) AS priorities,
           array_agg(h.head_due) AS dues, array_agg(h.head_seq) AS seqs
      INTO v_heads
      FROM unnest(p_bays) AS t (bay)
      LEFT JOIN LATERAL (SELECT l.head_priority, l.head_due, l.head_seq FROM lanes l
                          WHERE l.bay = t.bay
                          ORDER BY l.head_priority, l.head_due, l.head_seq LIMIT 1) AS h ON true;
    UPDATE bays b SET head_priority = t.priority, head_due = t.due, head_seq = t.seq
      FROM unnest(v_heads.bays, v_heads.priorities, v_heads.dues, v_heads.seqs)
           AS t (bay, priority, due, seq)
     WHERE b.id = t.bay AND t.seq IS NOT NULL
       AND (b.head_priority, b.head_due, b.head_seq) IS DISTINCT FROM (t.priority, t.due, t.seq);
    IF v_heads.empty IS NOT NULL THEN
        DELETE FROM bays WHERE id = ANY (v_heads.empty);
    END IF;
END $$;

-- Make lanes follow their jobs: their heads are read from these, so they cannot drift. Each lane is named
-- once. Beside lanes of p_queue, where the head was refused: the reason (as `judge_jobs` says), and the lane waits in
-- that bay, which opens at p_opens_ats. Cost -2: not refused, but locked, perhaps in a transaction of the
-- user's that stays open.
-- p_news: jobs that have just come, which have not asked yet, even where one like it stood.
CREATE OR REPLACE FUNCTION settle_lanes(
    p_lanes bigint[], p_queue text DEFAULT NULL, p_gates text[] DEFAULT NULL,
    p_costs float8[] DEFAULT NULL, p_opens_ats bigint[] DEFAULT NULL, p_news bigint[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_bays bigint[];
BEGIN
    IF p_queue IS NOT NULL THEN
        INSERT INTO bays (queue, gate, cost, opens_at, head_priority, head_due, head_seq)
        SELECT p_queue, t.gate, t.cost, max(t.opens_at), 0, timestamptz 'infinity', 0
          FROM unnest(p_gates, p_costs, p_opens_ats) AS t (gate, cost, opens_at)
         WHERE t.gate IS NOT NULL GROUP BY t.gate, t.cost
        ON CONFLICT (queue, gate, cost) DO UPDATE SET opens_at = excluded.opens_at;
    END IF;
    WITH looked AS MATERIALIZED (
        SELECT l.id, l.ctid AS place, l.bay, h.priority, h.due, h.seq,
               CASE WHEN t.gate IS NOT NULL
                    THEN (SELECT b.id FROM bays b WHERE b.queue = l.queue AND b.gate = t.gate
                                                    AND b.cost = t.cost) END AS refused_to,
               (l.head_priority, l.head_due, l.head_seq)
                   IS DISTINCT FROM (h.priority, h.due, h.seq)
                   OR coalesce(h.seq = ANY (p_news), false) AS moved
          FROM unnest(p_lanes, p_gates, p_costs) AS t (lane, gate, cost)
          JOIN lanes l ON l.id = t.lane
          LEFT JOIN LATERAL (SELECT j.priority, j.due, j.seq FROM jobs j
                              WHERE j.lane = l.id AND j.ready = 2
                              ORDER BY j.priority, j.due, j.seq LIMIT 1) AS h ON true
    ), aimed AS MATERIALIZED (
        SELECT k.*, CASE WHEN k.refused_to IS NOT NULL THEN k.refused_to
                         WHEN k.bay IS NULL THEN NULL
                         -- Another job is at the head and may need fewer tokens: it has not asked yet.
                         WHEN k.moved AND (SELECT b.cost FROM bays b WHERE b.id = k.bay) <> -1 THEN NULL
                         ELSE k.bay END AS aim
          FROM looked k
    ), gone AS (
        DELETE FROM lanes WHERE id = ANY (ARRAY(SELECT a.id FROM aimed a WHERE a.seq IS NULL))
        RETURNING id, queue, digest
    ), unnamed AS (
        DELETE FROM lane_digests d USING gone g
         WHERE d.queue = g.queue AND d.digest = g.digest AND d.lane = g.id
    ), led AS (
        UPDATE lanes l SET bay = a.aim, head_priority = a.priority, head_due = a.due,
                           head_seq = a.seq
          FROM aimed a
         WHERE l.ctid = a.place  -- no other transaction moves it: the caller holds its limits
           AND a.seq IS NOT NULL AND (a.moved OR a.aim IS DISTINCT FROM a.bay)
    )
    SELECT array_agg(DISTINCT c.bay) INTO v_bays
      FROM (SELECT a.bay, a.refused_to, a.aim FROM aimed a
             WHERE coalesce(a.bay, a.refused_to) IS NOT NULL
               AND (a.seq IS NULL OR a.moved OR a.aim IS DISTINCT FROM a.bay)) AS m,
           unnest(ARRAY[m.bay, m.refused_to, m.aim]) AS c (bay)
     WHERE c.bay IS NOT NULL;
    IF v_bays IS NOT NULL THEN
        PERFORM settle_bays(v_bays);
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
