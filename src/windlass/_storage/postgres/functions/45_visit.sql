-- Which limited and solo jobs may start now. How lanes are visited: 05_locks.sql.

-- The next jobs of a queue in their order: those of its open lanes and of the common line, as far as it is
-- certain that no other comes between. Nothing is locked here.
--   p_lanes, p_jobs   how many lanes to look into, and how many jobs to look for
--   p_common, p_priorities, p_dues   the common line, in order
--   seqs        the jobs; NULL: there is none in a lane. Beside them lanes (NULL: the common line) and where
--               their rows are, late (past its expiry), the first gate and its cost, and the lanes' bays,
--               if any
--   gates, costs   all of their gates, texts of arrays; NULL: each has one
--   stale       lanes whose first job is not the one they name: they are to be settled
--   more        there are others behind these; NULL: no lane is open
CREATE OR REPLACE FUNCTION next_in_lanes(
    p_queue text, p_lanes integer, p_jobs integer, p_now timestamptz,
    p_common bigint[], p_priorities integer[], p_dues timestamptz[],
    OUT seqs bigint[], OUT lanes bigint[], OUT rows tid[], OUT late boolean[], OUT first_gates text[],
    OUT first_costs float8[], OUT gates text[], OUT costs text[],
    OUT bays bigint[], OUT bay_gates text[], OUT bay_costs float8[], OUT stale bigint[],
    OUT more boolean
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_near record;
    v_lanes record;
    v_depth integer;
BEGIN
    -- The first bays bound the others: a lane that is not in one of these comes behind the last of them.
    SELECT array_agg(b.id) AS ids, array_agg(b.gate) AS gates, array_agg(b.cost) AS costs,
           max(b.head_priority) FILTER (WHERE b.place > p_lanes) AS priority,
           max(b.head_due) FILTER (WHERE b.place > p_lanes) AS due,
           max(b.head_seq) FILTER (WHERE b.place > p_lanes) AS seq
      INTO v_near
      FROM (SELECT o.*, row_number() OVER () AS place
              FROM (SELECT b.id, b.gate, b.cost, b.head_priority, b.head_due, b.head_seq
                      FROM bays b WHERE b.queue = p_queue AND b.opens_at = 0
                     ORDER BY b.head_priority, b.head_due, b.head_seq LIMIT p_lanes + 1) AS o
           ) AS b;
    IF v_near.seq IS NULL THEN
        v_near.priority := 2147483647;
        v_near.due := 'infinity';
        v_near.seq := 9223372036854775807;
    END IF;
    -- One lane more than is looked into: its head is the bound of what is certain.
    SELECT array_agg(l.id) AS ids, array_agg(l.row) AS rows, array_agg(l.head_seq) AS heads,
           array_agg(l.bay) AS bays, array_agg(l.gate) AS gates, array_agg(l.cost) AS costs,
           max(l.head_priority) FILTER (WHERE l.place > p_lanes) AS priority,
           max(l.head_due) FILTER (WHERE l.place > p_lanes) AS due,
           max(l.head_seq) FILTER (WHERE l.place > p_lanes) AS seq
      INTO v_lanes
      FROM (SELECT o.*, row_number() OVER () AS place
              FROM (SELECT * FROM (
                        (SELECT l.id, l.ctid AS row, l.head_priority, l.head_due, l.head_seq,
                                NULL::bigint AS bay, NULL::text AS gate, NULL::float8 AS cost
                           FROM lanes l WHERE l.queue = p_queue AND l.bay IS NULL
                          ORDER BY l.head_priority, l.head_due, l.head_seq LIMIT p_lanes + 1)
                        UNION ALL
                        SELECT l.id, l.row, l.head_priority, l.head_due, l.head_seq, n.bay, n.gate,
                               n.cost
                          FROM unnest(v_near.ids, v_near.gates, v_near.costs) AS n (bay, gate, cost)
                         CROSS JOIN LATERAL (
                               SELECT l.id, l.ctid AS row, l.head_priority, l.head_due, l.head_seq
                                 FROM lanes l
                                WHERE l.bay = n.bay AND (l.head_priority, l.head_due, l.head_seq)
                                      <= (v_near.priority, v_near.due, v_near.seq)
                                ORDER BY l.head_priority, l.head_due, l.head_seq
                                LIMIT p_lanes + 1) AS l) AS u
                     ORDER BY u.head_priority, u.head_due, u.head_seq LIMIT p_lanes + 1) AS o
           ) AS l;
    IF v_lanes.ids IS NULL THEN
        RETURN;
    END IF;
    more := v_lanes.seq IS NOT NULL;
    IF NOT more THEN
        v_lanes.priority := 2147483647;
        v_lanes.due := 'infinity';
        v_lanes.seq := 9223372036854775807;
    END IF;
    v_lanes.ids := v_lanes.ids[1 : p_lanes];
    -- Lanes take turns more or less: twice an equal share of each is enough, most of the time.
    v_depth := least(p_jobs, 1 + 2 * p_jobs / cardinality(v_lanes.ids));
    WITH found AS MATERIALIZED (
        SELECT l.*, j.*
          FROM unnest(v_lanes.ids, v_lanes.rows, v_lanes.heads, v_lanes.bays, v_lanes.gates,
                      v_lanes.costs) AS l (lane, row, head, bay, bay_gate, bay_cost)
          LEFT JOIN LATERAL (
               SELECT f.*, row_number() OVER () AS place
                 FROM (SELECT j.seq, j.priority, j.due, j.expires_at, j.gates, j.costs FROM jobs j
                        WHERE j.lane = l.lane AND j.ready = 2
                          AND (j.priority, j.due, j.seq)
                              < (v_lanes.priority, v_lanes.due, v_lanes.seq)
                        ORDER BY j.priority, j.due, j.seq LIMIT v_depth) AS f) AS j ON true
         WHERE l.lane IS NOT NULL  -- the lists of the others are one longer
    ), bound AS MATERIALIZED (
        -- Behind the last of a lane that was not read to its end others may come.
        SELECT f.priority, f.due, f.seq FROM found f WHERE f.place = v_depth
         ORDER BY f.priority, f.due, f.seq LIMIT 1
    ), wide AS MATERIALIZED (
        SELECT 1 FROM found f WHERE cardinality(f.gates) > 1 LIMIT 1
    ), sure AS (
        SELECT f.seq, f.lane, f.row, f.priority, f.due, f.expires_at <= p_now AS late, f.gates, f.costs,
               f.bay, f.bay_gate, f.bay_cost
          FROM found f LEFT JOIN bound b ON true
         WHERE f.seq IS NOT NULL
           AND (b.seq IS NULL OR (f.priority, f.due, f.seq) <= (b.priority, b.due, b.seq))
        UNION ALL
        SELECT c.seq, NULL, NULL, c.priority, c.due, NULL, NULL, NULL, NULL, NULL, NULL
          FROM unnest(p_common, p_priorities, p_dues) AS c (seq, priority, due)
          LEFT JOIN bound b ON true
         WHERE (c.priority, c.due, c.seq) < (v_lanes.priority, v_lanes.due, v_lanes.seq)
           AND (b.seq IS NULL OR (c.priority, c.due, c.seq) < (b.priority, b.due, b.seq))
    )
    SELECT array_agg(s.seq), array_agg(s.lane), array_agg(s.row),
           array_agg(coalesce(s.late, false)),
           array_agg(s.gates[1]), array_agg(s.costs[1]),
           -- Texts take time.
           array_agg(s.gates::text) FILTER (WHERE EXISTS (SELECT 1 FROM wide)),
           array_agg(s.costs::text) FILTER (WHERE EXISTS (SELECT 1 FROM wide)), array_agg(s.bay),
           array_agg(s.bay_gate), array_agg(s.bay_cost),
           ARRAY(SELECT f.lane FROM found f
                  WHERE coalesce(f.place, 1) = 1 AND f.seq IS DISTINCT FROM f.head),
           more OR EXISTS (SELECT 1 FROM bound)
      INTO seqs, lanes, rows, late, first_gates, first_costs, gates, costs, bays, bay_gates, bay_costs,
           stale, more
      FROM (SELECT * FROM sure s ORDER BY s.priority, s.due, s.seq) AS s;
END $$;

-- What is left of the gates that these jobs need (p_next: `next_in_lanes`), side by side. The caller has
-- called `lock_limits`.
--   limits     the names of their limits
--   places     gate → place among the others; NULL, as long as all is clear
--   stored     whether the gate was used before
--   units      how many more may start; NULL: any number. A breaker that was open lets one through
--   opens_ats  when an open breaker lets one through; NULL: now
--   spents     until when the bucket is being filled; beside it the limit's rate; NULL: no rate
--   clear      none of the first p_room jobs would be refused, judged one after the other. Then `wanted`:
--              which gates these need; `afters`: what `spents` will be. Never if costs of a rate differ
CREATE OR REPLACE FUNCTION read_gates(
    p_next record, p_room integer, p_now bigint,
    OUT names text[], OUT limits text[], OUT places jsonb, OUT stored boolean[], OUT units bigint[],
    OUT opens_ats bigint[], OUT spents bigint[], OUT spacings bigint[], OUT bursts bigint[],
    OUT burst_spans bigint[], OUT clear boolean, OUT wanted boolean[], OUT afters bigint[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_needs record;
    v_limits record;
BEGIN
    IF p_next.gates IS NULL THEN
        SELECT array_agg(g.gate) AS gates, array_agg(g.name) AS names, array_agg(g.jobs) AS jobs,
               array_agg(g.least) AS least, array_agg(g.most) AS most
          INTO v_needs
          FROM (SELECT t.gate, split_part(t.gate, ':', 1) AS name,
                       count(*) FILTER (WHERE t.n <= p_room) AS jobs,
                       min(t.cost) FILTER (WHERE t.n <= p_room) AS least,
                       max(t.cost) FILTER (WHERE t.n <= p_room) AS most
                  FROM unnest(p_next.first_gates, p_next.first_costs)
                       WITH ORDINALITY AS t (gate, cost, n)
                 WHERE t.gate IS NOT NULL GROUP BY t.gate) AS g;
    ELSE
        SELECT array_agg(g.gate) AS gates, array_agg(g.name) AS names, array_agg(g.jobs) AS jobs,
               array_agg(g.least) AS least, array_agg(g.most) AS most
          INTO v_needs
          FROM (SELECT u.gate, split_part(u.gate, ':', 1) AS name, sum(d.jobs) AS jobs,
                       min(u.cost) FILTER (WHERE d.jobs > 0) AS least,
                       max(u.cost) FILTER (WHERE d.jobs > 0) AS most
                  FROM (SELECT t.gates, t.costs,
                               (count(*) FILTER (WHERE t.n <= p_room))::integer AS jobs
                          FROM unnest(p_next.gates, p_next.costs)
                               WITH ORDINALITY AS t (gates, costs, n)
                         WHERE t.gates IS NOT NULL GROUP BY t.gates, t.costs) AS d,
                       unnest(d.gates::text[], d.costs::float8[]) AS u (gate, cost)
                 GROUP BY u.gate) AS g;
    END IF;
    limits := ARRAY(SELECT DISTINCT n FROM unnest(v_needs.names) AS n);
    -- Few limits have many gates: they are read once.
    SELECT array_agg(l.name) AS names, array_agg(l.concurrency) AS concurrencies,
           array_agg(l.failures) AS failures, array_agg(l.spacing) AS spacings,
           array_agg(l.burst) AS bursts, array_agg(l.burst_span) AS burst_spans
      INTO v_limits FROM limits l WHERE l.name = ANY (limits);
    SELECT array_agg(g.gate), array_agg(g.stored), array_agg(g.left), array_agg(g.opens_at),
           array_agg(g.spent), array_agg(g.spacing), array_agg(g.burst), array_agg(g.burst_span),
           bool_and((g.left >= g.jobs) IS NOT FALSE AND g.opens_at IS NULL
                    AND (g.spacing IS NULL OR g.jobs = 0
                         OR (g.spent + g.takes <= p_now + g.burst_span) IS TRUE)),
           array_agg(g.jobs > 0), array_agg(g.spent + coalesce(g.takes, 0))
      INTO names, stored, units, opens_ats, spents, spacings, bursts, burst_spans, clear, wanted,
           afters
      FROM (SELECT f.*,
                   -- `gate_usage`; a call for each of them takes too long.
                   f.running - CASE WHEN f.running IS NOT NULL THEN (
                       SELECT count(*)
                         FROM (SELECT 1 FROM holds h JOIN jobs j ON j.seq = h.seq
                                WHERE h.gate = f.gate AND j.claim_number = h.claim_number
                                  AND j.state + 0 = 1
                                LIMIT f.running) AS r) END AS left,
                   CASE WHEN f.spacing IS NOT NULL
                        THEN greatest(coalesce(f.spent_until, p_now), p_now) END AS spent,
                   -- Nothing, if it is more than the bucket holds: the product may be too large.
                   CASE WHEN f.spacing IS NOT NULL AND f.least = f.most AND f.most < f.burst
                             AND f.jobs * span_of(f.spacing, f.most)::float8 <= f.burst_span
                        THEN f.jobs * span_of(f.spacing, f.most) END AS takes
              FROM (SELECT n.gate, n.jobs, n.least, n.most, s.gate IS NOT NULL AS stored,
                           CASE WHEN s.failures >= v_limits.failures[n.place]
                                     AND coalesce(s.open_until, 0) <= p_now
                                THEN 1 ELSE v_limits.concurrencies[n.place] END AS running,
                           CASE WHEN s.failures >= v_limits.failures[n.place]
                                     AND s.open_until > p_now
                                THEN s.open_until END AS opens_at,
                           s.spent_until,
                           CASE WHEN v_limits.failures[n.place] IS NULL
                                THEN v_limits.spacings[n.place] END AS spacing,
                           v_limits.bursts[n.place] AS burst,
                           v_limits.burst_spans[n.place] AS burst_span
                      FROM (SELECT u.*, array_position(v_limits.names, u.name) AS place
                              FROM unnest(v_needs.gates, v_needs.names, v_needs.jobs, v_needs.least,
                                          v_needs.most) AS u (gate, name, jobs, least, most)
                            OFFSET 0) AS n
                      LEFT JOIN gates s ON s.gate = n.gate
                    OFFSET 0) AS f
            OFFSET 0) AS g;
    clear := coalesce(clear, true);
END $$;

-- Which of these jobs may start, if each counts before the next is judged: as `find_shut`, in memory.
--   p_next     the jobs: `next_in_lanes`
--   p_left     what is left of their gates: `read_gates`
--   p_passed   jobs to pass by
--   starts     the jobs that start and, beside them, their lanes; commons: those of the common line
--   refused    lanes whose next job is refused; beside them the gate, the cost and when to ask again
--   spents     of the gates, afterwards
--   taken      places of the gates that were taken from
--   cut_short  stopped before a job that has expired
CREATE OR REPLACE FUNCTION judge_jobs(
    p_room integer, p_now bigint, p_next record, p_left record, p_passed bigint[],
    OUT starts bigint[], OUT lanes bigint[], OUT commons bigint[], OUT refused bigint[],
    OUT refused_gates text[], OUT refused_costs float8[], OUT opens_ats bigint[],
    OUT spents bigint[], OUT taken boolean[], OUT cut_short boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_room integer := p_room;
    v_seqs bigint[] := p_next.seqs;
    v_lanes bigint[] := p_next.lanes;
    v_late boolean[] := p_next.late;
    v_gates text[] := p_next.gates;
    v_cost_texts text[] := p_next.costs;
    v_units bigint[] := p_left.units;
    v_bays bigint[] := p_next.bays;
    v_shut_bays bigint[] := '{}';
    v_names text[];
    v_text text;
    v_cost_text text;
    v_places integer[];
    v_costs float8[];
    v_place integer;
    v_shut integer;
    v_shut_cost float8;
    v_shut_until bigint;
    v_full bigint;
    v_opens_at bigint;
    v_left bigint;
    v_count integer;
BEGIN
    starts := '{}';
    lanes := '{}';
    commons := '{}';
    refused := '{}';
    refused_gates := '{}';
    refused_costs := '{}';
    opens_ats := '{}';
    spents := p_left.spents;
    taken := array_fill(false, ARRAY[coalesce(cardinality(p_left.names), 0)]);
    cut_short := false;
    FOR i IN 1 .. coalesce(cardinality(v_seqs), 0) LOOP
        EXIT WHEN v_room = 0;
        IF v_lanes[i] IS NULL THEN
            commons := commons || v_seqs[i];
            v_room := v_room - 1;
            CONTINUE;
        END IF;
        CONTINUE WHEN v_lanes[i] = ANY (refused) OR v_bays[i] = ANY (v_shut_bays)
                   OR v_seqs[i] = ANY (p_passed);
        IF v_late[i] THEN
            -- More have expired than one claim discards.
            cut_short := true;
            EXIT;
        END IF;
        IF v_text IS DISTINCT FROM v_gates[i] OR v_cost_text <> v_cost_texts[i] THEN
            v_text := v_gates[i];
            v_cost_text := v_cost_texts[i];
            v_costs := v_cost_text::float8[];
            v_names := v_text::text[];
            v_count := cardinality(v_names);
            v_places := ARRAY[(p_left.places ->> v_names[1])::integer];
            FOR k IN 2 .. v_count LOOP
                v_places := v_places || (p_left.places ->> v_names[k])::integer;
            END LOOP;
        END IF;
        v_shut := NULL;
        FOR k IN 1 .. v_count LOOP
            v_place := v_places[k];
            IF v_units[v_place] <= 0 THEN
                v_shut := v_place;
                v_shut_cost := -1;
                v_shut_until := NULL;
                EXIT;
            END IF;
            IF spents[v_place] IS NOT NULL THEN
                v_left := CASE WHEN v_costs[k] >= p_left.bursts[v_place] THEN 0
                               ELSE p_left.burst_spans[v_place]
                                    - span_of(p_left.spacings[v_place], v_costs[k]) END;
                v_full := spents[v_place];
                IF v_full - p_now > v_left
                   AND (v_shut IS NULL OR v_full - v_left > v_shut_until) THEN
                    v_shut := v_place;
                    v_shut_cost := v_costs[k];
                    v_shut_until := v_full - v_left;
                END IF;
            ELSE
                v_opens_at := p_left.opens_ats[v_place];
                IF v_opens_at IS NOT NULL AND (v_shut IS NULL OR v_opens_at > v_shut_until) THEN
                    v_shut := v_place;
                    v_shut_cost := -1;
                    v_shut_until := v_opens_at;
                END IF;
            END IF;
        END LOOP;
        IF v_shut IS NOT NULL THEN
            refused := refused || v_lanes[i];
            refused_gates := refused_gates || p_left.names[v_shut];
            refused_costs := refused_costs || v_shut_cost;
            opens_ats := opens_ats || v_shut_until;
            IF p_next.bay_gates[i] = p_left.names[v_shut]
               AND p_next.bay_costs[i] = v_shut_cost THEN
                -- The others in its bay need the same: it closes as a whole.
                v_shut_bays := v_shut_bays || v_bays[i];
            END IF;
            CONTINUE;
        END IF;
        FOR k IN 1 .. v_count LOOP
            v_place := v_places[k];
            taken[v_place] := true;
            -- A job that names a gate twice is still one job.
            IF v_count = 1 OR array_position(v_places, v_place) = k THEN
                v_units[v_place] := v_units[v_place] - 1;
            END IF;
            IF spents[v_place] IS NOT NULL THEN
                spents[v_place] := spents[v_place]
                                   + span_of(p_left.spacings[v_place], v_costs[k]);
            END IF;
        END LOOP;
        starts := starts || v_seqs[i];
        lanes := lanes || v_lanes[i];
        v_room := v_room - 1;
    END LOOP;
END $$;

-- The same as `judge_jobs` where none is refused: p_left.clear, and none has expired.
CREATE OR REPLACE FUNCTION admit_jobs(
    p_room integer, p_next record, p_left record,
    OUT starts bigint[], OUT lanes bigint[], OUT commons bigint[], OUT refused bigint[],
    OUT refused_gates text[], OUT refused_costs float8[], OUT opens_ats bigint[],
    OUT spents bigint[], OUT taken boolean[], OUT cut_short boolean
)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(array_agg(t.seq) FILTER (WHERE t.lane IS NOT NULL), '{}'),
           coalesce(array_agg(t.lane) FILTER (WHERE t.lane IS NOT NULL), '{}'),
           coalesce(array_agg(t.seq) FILTER (WHERE t.lane IS NULL), '{}')
      INTO starts, lanes, commons
      FROM unnest(p_next.seqs[1 : p_room], p_next.lanes[1 : p_room]) AS t (seq, lane);
    refused := '{}';
    spents := p_left.afters;
    taken := p_left.wanted;
    cut_short := false;
END $$;

-- Start these jobs of lanes, which the caller has locked, and take from their gates. p_judged and p_left:
-- what `judge_jobs` and `read_gates` said. The answer: whether one of them holds its key until now.
CREATE OR REPLACE FUNCTION start_limited(
    p_seqs bigint[], p_worker text, p_now timestamptz, p_judged record, p_left record
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_keyed boolean;
BEGIN
    WITH begun AS (
        UPDATE jobs j
           SET state = 1, ready = NULL, lane = NULL, attempt = j.attempt + 1,
               claim_number = j.claim_number + 1, started_at = p_now, worker = p_worker,
               cancel_requested = false, progress = NULL, progress_note = NULL
         WHERE j.seq = ANY (p_seqs)
        RETURNING j.seq, j.claim_number, j.gates, j.key_window = 'until_started' AS keyed
    ), first AS (
        -- Most have one gate and were never started: nothing is there twice.
        INSERT INTO holds (gate, seq, claim_number)
        SELECT b.gates[1], b.seq, b.claim_number FROM begun b
         WHERE b.claim_number = 1 AND cardinality(b.gates) = 1
    ), others AS (
        INSERT INTO holds AS h (gate, seq, claim_number)
        SELECT DISTINCT g, b.seq, b.claim_number FROM begun b, unnest(b.gates) AS g
         WHERE b.claim_number > 1 OR cardinality(b.gates) > 1
        ON CONFLICT (gate, seq) DO UPDATE SET claim_number = excluded.claim_number
    )
    SELECT bool_or(b.keyed) INTO v_keyed FROM begun b;
    -- A gate without a rate spends nothing; it is listed all the same.
    INSERT INTO gates AS g (gate, spent_until)
    SELECT t.gate, t.spent
      FROM unnest(p_left.names, p_left.stored, p_judged.spents, p_judged.taken)
           AS t (gate, stored, spent, taken)
     WHERE t.taken AND (t.spent IS NOT NULL OR NOT t.stored)
    ON CONFLICT (gate) DO UPDATE SET spent_until = excluded.spent_until;
    RETURN coalesce(v_keyed, false);
END $$;

-- The first p_count jobs of p_next (`next_in_lanes`) were started: `settle_lanes` for their lanes, of which
-- none was refused. The answer: how many.
CREATE OR REPLACE FUNCTION advance_lanes(p_next record, p_count integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_lanes bigint[] := p_next.lanes[1 : p_count];
    v_rows tid[] := p_next.rows[1 : p_count];
    v_many integer;
BEGIN
    IF array_remove(p_next.bays[1 : p_count], NULL) <> '{}' THEN
        v_lanes := ARRAY(SELECT DISTINCT l FROM unnest(v_lanes) AS l WHERE l IS NOT NULL);
        PERFORM settle_lanes(v_lanes);
        RETURN cardinality(v_lanes);
    END IF;
    -- They are where they were read: no other transaction moves them.
    WITH looked AS MATERIALIZED (
        SELECT t.lane, t.row, h.priority, h.due, h.seq
          FROM (SELECT DISTINCT u.lane, u.row FROM unnest(v_lanes, v_rows) AS u (lane, row)
                 WHERE u.lane IS NOT NULL) AS t
          LEFT JOIN LATERAL (SELECT j.priority, j.due, j.seq FROM jobs j
                              WHERE j.lane = t.lane AND j.ready = 2
                              ORDER BY j.priority, j.due, j.seq LIMIT 1) AS h ON true
    ), gone AS (
        DELETE FROM lanes WHERE id = ANY (ARRAY(SELECT k.lane FROM looked k WHERE k.seq IS NULL))
        RETURNING id, queue, digest
    ), unnamed AS (
        DELETE FROM lane_digests d USING gone g
         WHERE d.queue = g.queue AND d.digest = g.digest AND d.lane = g.id
    ), led AS (
        UPDATE lanes l SET head_priority = k.priority, head_due = k.due, head_seq = k.seq
          FROM looked k
         WHERE l.ctid = k.row AND k.seq IS NOT NULL
    )
    SELECT count(*) INTO v_many FROM looked;
    RETURN v_many;
END $$;

-- A claim on a queue with lanes: the common line and the open lanes, merged. The caller has called
-- `lock_limits` with p_held.
--   p_common, p_priorities, p_dues   the head of the queue's common line, in order, locked
--   chosen      those of p_common that are to be started, by the caller
--   started     limited jobs that were started here
--   charged     the gates whose tokens they took
--   keyed       one of them holds its key until it is started
--   cut_short   stopped at a bound: the next call gets further
-- Looks at no more than p_room + 64 lanes. Members of cancelled flows that the cancel has not reached do not
-- start: up to 500 that are met end here. Their ends are noted only.
CREATE OR REPLACE FUNCTION serve_lanes(
    p_queue text, p_room integer, p_worker text, p_now timestamptz, p_held text[],
    p_common bigint[], p_priorities integer[], p_dues timestamptz[],
    OUT chosen bigint[], OUT started bigint[], OUT charged text[], OUT keyed boolean,
    OUT cut_short boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_us bigint := us_of(p_now);
    -- A flow that is cancelled from now on: its sweep finds what is started here.
    v_cancels boolean := EXISTS (SELECT 1 FROM flows f WHERE f.cancelled AND f.state = 0);
    v_void bigint[];
    v_ended bigint[];
    v_ends integer := 500;
    v_visits integer := p_room + 64;
    v_room integer := p_room;
    v_next record;
    v_left record;
    v_judged record;
    v_locked bigint[];
    v_busy bigint[];
    v_clear boolean;
    v_settle record;
BEGIN
    chosen := '{}';
    started := '{}';
    charged := '{}';
    keyed := false;
    cut_short := false;
    WHILE v_room > 0 LOOP
        IF v_visits <= 0 THEN
            cut_short := true;
            RETURN;
        END IF;
        SELECT n.* INTO v_next FROM next_in_lanes(
            p_queue, least(v_visits, greatest(v_room, 16)),
            CASE WHEN v_cancels THEN greatest(v_room, 100) ELSE v_room END, p_now,
            p_common[cardinality(chosen) + 1 :], p_priorities[cardinality(chosen) + 1 :],
            p_dues[cardinality(chosen) + 1 :]) AS n;
        EXIT WHEN v_next.more IS NULL;
        SELECT r.* INTO v_left FROM read_gates(v_next, v_room, v_us) AS r;
        IF NOT v_left.limits <@ p_held
           OR (v_next.stale <> '{}' AND EXISTS (
                  SELECT 1 FROM lane_limits l
                   WHERE l.queue = p_queue AND l.name <> ALL (p_held))) THEN
            -- A lane of another limit came after the look that decides about the locks. A stale lane
            -- does not say whose it is.
            PERFORM note_lane_limits(ARRAY[p_queue], ARRAY[v_left.names::text]);
            cut_short := true;
            EXIT;
        END IF;
        v_busy := '{}';
        IF v_cancels THEN
            v_void := members_cancelled(ARRAY(
                SELECT l.seq FROM unnest(v_next.seqs, v_next.lanes) AS l (seq, lane)
                 WHERE l.lane IS NOT NULL));
            IF v_void <> '{}' THEN
                v_ended := ARRAY(SELECT j.seq FROM jobs j
                                  WHERE j.seq = ANY (v_void) AND j.ready + 0 = 2
                                    FOR UPDATE SKIP LOCKED);
                IF v_ended <> '{}' THEN
                    PERFORM end_waiting(v_ended, 4, NULL, p_now, true);
                    v_ends := v_ends - greatest(cardinality(v_ended), 10);
                    IF v_ends <= 0 THEN
                        cut_short := true;
                        RETURN;
                    END IF;
                    CONTINUE;
                END IF;
                v_busy := v_void;  -- others have them
            END IF;
        END IF;
        v_clear := v_left.clear AND true <> ALL (v_next.late) AND v_busy = '{}';
        IF true = ANY (v_next.late) THEN
            -- Expired jobs that could not be discarded, because other transactions hold their rows.
            v_busy := v_busy || ARRAY(
                SELECT l.seq FROM unnest(v_next.seqs, v_next.late) AS l (seq, late)
                 WHERE l.late
                EXCEPT
                SELECT f.seq FROM (SELECT j.seq FROM jobs j
                                    WHERE j.seq = ANY (v_next.seqs) AND j.expires_at <= p_now
                                      FOR UPDATE SKIP LOCKED) AS f);
        END IF;
        LOOP
            IF v_clear THEN
                SELECT d.* INTO v_judged FROM admit_jobs(v_room, v_next, v_left) AS d;
            ELSE
                v_left.places := coalesce(
                    v_left.places,
                    (SELECT jsonb_object_agg(t.name, t.n)
                       FROM unnest(v_left.names) WITH ORDINALITY AS t (name, n)));
                IF v_next.gates IS NULL THEN
                    SELECT array_agg(ARRAY[f.gate]::text), array_agg(ARRAY[f.cost]::text)
                      INTO v_next.gates, v_next.costs
                      FROM unnest(v_next.first_gates, v_next.first_costs) AS f (gate, cost);
                END IF;
                SELECT d.* INTO v_judged
                  FROM judge_jobs(v_room, v_us, v_next, v_left, v_busy) AS d;
            END IF;
            v_locked := ARRAY(SELECT j.seq FROM jobs j
                               WHERE j.seq = ANY (v_judged.starts) AND j.ready + 0 = 2
                                 AND j.lane = v_next.lanes[array_position(v_next.seqs, j.seq)]
                                 FOR UPDATE SKIP LOCKED);
            EXIT WHEN cardinality(v_locked) = cardinality(v_judged.starts);
            -- Others may be under replacement, in a transaction of the user's that stays open: they
            -- are passed by, and all are judged again.
            v_busy := v_busy || ARRAY(SELECT s FROM unnest(v_judged.starts) AS s
                                       WHERE s <> ALL (v_locked));
            v_clear := false;
        END LOOP;
        IF v_locked <> '{}' THEN
            keyed := start_limited(v_locked, p_worker, p_now, v_judged, v_left) OR keyed;
            started := started || v_locked;
            charged := charged || ARRAY(
                SELECT t.gate FROM unnest(v_left.names, v_judged.spents, v_judged.taken)
                       AS t (gate, spent, taken)
                 WHERE t.taken AND t.spent IS NOT NULL);
        END IF;
        chosen := chosen || v_judged.commons;
        v_room := v_room - cardinality(v_locked) - cardinality(v_judged.commons);
        IF v_clear AND v_next.stale = '{}' THEN
            v_visits := v_visits - advance_lanes(v_next, cardinality(v_judged.starts || v_judged.commons));
            EXIT WHEN NOT v_next.more;
            CONTINUE;
        END IF;
        SELECT array_agg(l.lane) AS lanes, array_agg(l.gate) AS gates, array_agg(l.cost) AS costs,
               array_agg(l.opens_at) AS opens_ats, count(*)::integer AS count
          INTO v_settle
          FROM (SELECT DISTINCT ON (u.lane) u.*
                  FROM (SELECT c.lane, c.gate, -2::float8 AS cost,
                               v_us + 100000 AS opens_at, 1 AS rank
                          FROM unnest(v_next.seqs, v_next.lanes, v_next.first_gates)
                               AS c (seq, lane, gate)
                         WHERE c.seq = ANY (v_busy)
                        UNION ALL
                        SELECT r.*, 2
                          FROM unnest(v_judged.refused, v_judged.refused_gates,
                                      v_judged.refused_costs, v_judged.opens_ats) AS r
                        UNION ALL
                        SELECT o, NULL, NULL, NULL, 3
                          FROM unnest(v_judged.lanes || v_next.stale) AS o) AS u
                 ORDER BY u.lane, u.rank) AS l;
        IF v_settle.count > 0 THEN
            PERFORM settle_lanes(
                v_settle.lanes, p_queue, v_settle.gates, v_settle.costs, v_settle.opens_ats);
        END IF;
        v_visits := v_visits - v_settle.count;
        IF v_judged.cut_short THEN
            cut_short := true;
            RETURN;
        END IF;
        EXIT WHEN NOT v_next.more;
    END LOOP;
    -- No lane is open: the common line has all the room that is left.
    chosen := chosen || p_common[cardinality(chosen) + 1 : cardinality(chosen) + v_room];
END $$;

-- The first solo job of a queue that its limits admit, among the first 64; a refused one closes its
-- lane behind it. Read-only. With p_discard the caller will discard those that have expired; without
-- it they count like others: a claim has to ask for them.
--   job       its seq; NULL: there is none
--   opens_at  when the first refused one may be admitted, microseconds since the epoch
--   expired   those met on the way that have expired
--   more      there are more than were looked at
CREATE OR REPLACE FUNCTION find_solo(
    p_queue text, p_now timestamptz, p_discard boolean,
    OUT job bigint, OUT opens_at bigint, OUT expired bigint[], OUT more boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_us bigint := us_of(p_now);
    v_job record;
    v_shut record;
    v_lane text[];
    v_closed text[] := '{}';
    v_looks integer := 0;
BEGIN
    expired := '{}';
    more := false;
    FOR v_job IN
        SELECT j.seq, j.expires_at, j.gates, j.costs FROM jobs j
         WHERE j.queue = p_queue AND j.ready = 3
         ORDER BY j.priority, j.due, j.seq LIMIT 65
    LOOP
        v_looks := v_looks + 1;
        IF v_looks > 64 THEN
            more := true;
            RETURN;
        END IF;
        IF p_discard AND v_job.expires_at <= p_now THEN
            expired := expired || v_job.seq;
            CONTINUE;
        END IF;
        v_lane := ARRAY(SELECT DISTINCT g FROM unnest(v_job.gates) g ORDER BY g);
        CONTINUE WHEN v_lane::text = ANY (v_closed);
        SELECT s.gate, s.opens_at INTO v_shut FROM find_shut(v_job.gates, v_job.costs, v_us) AS s;
        IF v_shut.gate IS NULL THEN
            job := v_job.seq;
            RETURN;
        END IF;
        v_closed := v_closed || v_lane::text;
        opens_at := least(opens_at, v_shut.opens_at);
    END LOOP;
END $$;
