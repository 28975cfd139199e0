-- Giving ready jobs to workers.

-- A claim on a queue with lanes: the common line and the open bays, merged by their heads. The
-- caller has called `lock_lanes`.
--   p_common, p_priorities, p_dues   the head of the queue's common line, in order, locked
--   chosen      those of p_common that are to be started, by the caller
--   started     limited jobs that were started here: each must count before the next is judged
--   charged     the gates they took from
--   cut_short   stopped at a bound: whoever asks again gets further
-- Looks at no more than p_room + 64 lanes.
CREATE FUNCTION visit_lanes(
    p_queue text, p_room integer, p_worker text, p_now timestamptz,
    p_common bigint[], p_priorities integer[], p_dues timestamptz[],
    OUT chosen bigint[], OUT started bigint[], OUT charged text[], OUT cut_short boolean
)
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_us bigint := us_of(p_now);
    v_visits integer := p_room + 64;
    v_room integer := p_room;
    v_next integer := 1;
    v_most integer := coalesce(cardinality(p_common), 0);
    v_bay record;
    v_bound record;
    v_lane bigint;
    v_job record;
    v_number integer;
    v_gate text;
    v_cost float8;
    v_opens_at bigint;
BEGIN
    chosen := '{}';
    started := '{}';
    charged := '{}';
    cut_short := false;
    WHILE v_room > 0 LOOP
        SELECT b.id, b.gate, b.cost, b.head_priority, b.head_due, b.head_seq INTO v_bay
          FROM bays b WHERE b.queue = p_queue AND b.opens_at = 0
         ORDER BY b.head_priority, b.head_due, b.head_seq LIMIT 1;
        IF NOT FOUND THEN
            -- Nobody else is open: the common line has all the room that is left.
            EXIT WHEN v_next > v_most;
            chosen := chosen || p_common[v_next : least(v_most, v_next + v_room - 1)];
            EXIT;
        END IF;
        IF v_next <= v_most AND (p_priorities[v_next], p_dues[v_next], p_common[v_next])
                              < (v_bay.head_priority, v_bay.head_due, v_bay.head_seq) THEN
            chosen := chosen || p_common[v_next];
            v_next := v_next + 1;
            v_room := v_room - 1;
            CONTINUE;
        END IF;
        IF v_visits = 0 THEN
            cut_short := true;
            EXIT;
        END IF;
        v_visits := v_visits - 1;
        -- The lane goes on while its jobs come before all others: of its bay, of the other open
        -- bays, of the common line.
        SELECT l.id INTO v_lane FROM lanes l WHERE l.bay = v_bay.id
         ORDER BY l.head_priority, l.head_due, l.head_seq LIMIT 1;
        SELECT o.head_priority AS priority, o.head_due AS due, o.head_seq AS seq INTO v_bound
          FROM ((SELECT l.head_priority, l.head_due, l.head_seq FROM lanes l
                  WHERE l.bay = v_bay.id AND (l.head_priority, l.head_due, l.head_seq)
                        > (v_bay.head_priority, v_bay.head_due, v_bay.head_seq)
                  ORDER BY l.head_priority, l.head_due, l.head_seq LIMIT 1)
                UNION ALL
                (SELECT b.head_priority, b.head_due, b.head_seq FROM bays b
                  WHERE b.queue = p_queue AND b.opens_at = 0
                    AND (b.head_priority, b.head_due, b.head_seq)
                        > (v_bay.head_priority, v_bay.head_due, v_bay.head_seq)
                  ORDER BY b.head_priority, b.head_due, b.head_seq LIMIT 1)
                UNION ALL
                SELECT p_priorities[v_next], p_dues[v_next], p_common[v_next]
                 WHERE v_next <= v_most) AS o
         ORDER BY o.head_priority, o.head_due, o.head_seq LIMIT 1;
        v_gate := NULL;
        FOR v_job IN
            SELECT j.seq, j.priority, j.due, j.expires_at, j.gates, j.costs FROM jobs j
             WHERE j.lane = v_lane AND j.ready = 2
             ORDER BY j.priority, j.due, j.seq LIMIT v_room
        LOOP
            EXIT WHEN v_bound.seq IS NOT NULL
                  AND (v_job.priority, v_job.due, v_job.seq)
                      > (v_bound.priority, v_bound.due, v_bound.seq);
            IF v_job.expires_at <= p_now THEN
                -- More have expired than one claim discards.
                cut_short := true;
                EXIT;
            END IF;
            SELECT s.gate, s.cost, s.opens_at INTO v_gate, v_cost, v_opens_at
              FROM find_shut(v_job.gates, v_job.costs, v_us) AS s;
            EXIT WHEN v_gate IS NOT NULL;
            UPDATE jobs SET state = 1, ready = NULL, lane = NULL, attempt = attempt + 1,
                            claim_number = claim_number + 1, started_at = p_now,
                            worker = p_worker, cancel_requested = false, progress = NULL,
                            progress_note = NULL
             WHERE seq = v_job.seq
            RETURNING claim_number INTO v_number;
            PERFORM charge_gates(v_job.gates, v_job.costs, v_job.seq, v_number, v_us);
            started := started || v_job.seq;
            charged := charged || v_job.gates;
            v_room := v_room - 1;
        END LOOP;
        PERFORM settle_lane(v_lane, v_gate, v_cost, v_opens_at);
        EXIT WHEN cut_short;
    END LOOP;
END $$;

-- The first solo job of a queue that its limits admit, among the first 64; a refused one closes its
-- lane behind it. Read-only. With p_discard the caller will discard those that have expired; without
-- it they count like others: somebody has to ask for them.
--   job       its seq; NULL: there is none
--   opens_at  when the first refused one may be admitted, microseconds since the epoch
--   expired   those met on the way that have expired
--   more      there are more than were looked at
CREATE FUNCTION find_solo(
    p_queue text, p_now timestamptz, p_discard boolean,
    OUT job bigint, OUT opens_at bigint, OUT expired bigint[], OUT more boolean
)
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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

-- What few jobs carry, for `claim_jobs`; NULL for one that carries nothing.
CREATE FUNCTION extras_of(j jobs) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN coalesce(j.error_kind, j.correlation_id, j.principal, j.tenant, j.trace,
                              j.tags, j.backoff) IS NOT NULL
                     OR j.missed_at IS NOT NULL OR j.lost > 0 OR j.solo
                THEN ARRAY[j.lost::text, CASE WHEN j.solo THEN '1' END, us_of(j.missed_at)::text,
                           j.backoff, j.error_kind, j.error_message, j.tenant, j.principal,
                           j.correlation_id, j.trace, j.tags]
           END
$$;

-- `JobStore.claim`. p_queues and p_limits are the wants, side by side.
--
-- Returns the claimed jobs, want by want, those of one want in any order (the caller sorts them: that
-- costs the server more); extras: see `extras_of`. The last row is about the claim itself: seq NULL; number 0 if the worker
-- is not live; attempt 1 if a solo job is due; due, the store's now; timeout, when something
-- becomes claimable (microseconds since the epoch); extras, the ids of the jobs that were discarded.
CREATE FUNCTION claim_jobs(
    p_at timestamptz, p_worker text, p_queues text[], p_limits integer[], p_total integer,
    p_solo boolean
) RETURNS TABLE (
    seq bigint, id bytea, number integer, attempt integer, max_attempts integer, budget integer,
    due timestamptz, timeout bigint, queue text, task text, payload bytea, extras text[],
    priority integer
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_left integer := CASE WHEN p_solo THEN least(p_total, 1) ELSE p_total END;
    v_room integer;
    v_expiries integer := 500;
    v_locked boolean;
    v_queue text;
    v_look record;
    v_next timestamptz;
    v_late bigint[];
    v_take bigint[];
    v_priorities integer[];
    v_dues timestamptz[];
    v_started bigint[];
    v_merged boolean;
    v_keyed boolean;
    v_claimed bigint[] := '{}';
    v_visited record;
    v_solo record;
    v_solo_due boolean := false;
    v_with_solo text[] := '{}';
    v_with_lanes text[] := '{}';
    v_expired text[] := '{}';
    v_charged text[] := '{}';
BEGIN
    -- Burial and claim need not exclude each other: every sweep ends the claims of whoever is not
    -- live, also those of a claim that raced it.
    IF NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = p_worker AND w.state = 'live') THEN
        number := 0;
        attempt := 0;
        due := v_now;
        RETURN NEXT;
        RETURN;
    END IF;
    -- A claim that a crash of the server takes back would be given to somebody else under the
    -- same number, so it is durable whatever else is.
    PERFORM commit_durably(true);
    -- Where no queue has lanes, limited jobs that fall due, or solo jobs, there is nothing to lock.
    SELECT bool_or(
               EXISTS (SELECT 1 FROM bays b WHERE b.queue = q.queue)
               OR EXISTS (SELECT 1 FROM jobs j WHERE j.queue = q.queue AND j.ready = 3)
               OR EXISTS (SELECT 1 FROM (SELECT j.gates, j.solo FROM jobs j
                                          WHERE j.queue BETWEEN q.queue AND q.queue
                                            AND j.ready = 0 AND j.due <= v_now
                                          ORDER BY j.queue, j.due, j.seq LIMIT 500) AS d
                           WHERE d.solo OR d.gates IS NOT NULL))
      INTO v_locked FROM unnest(p_queues) AS q (queue);
    IF v_locked THEN
        PERFORM lock_lanes();
    END IF;

    FOR i IN 1 .. coalesce(cardinality(p_queues), 0) LOOP
        v_queue := p_queues[i];
        FOR again IN 1 .. 2 LOOP
            SELECT (SELECT q.paused FROM queues q WHERE q.name = v_queue) AS paused,
                   (SELECT j.due FROM jobs j
                     WHERE j.queue BETWEEN v_queue AND v_queue AND j.ready = 0
                     ORDER BY j.queue, j.due LIMIT 1) AS due,
                   EXISTS (SELECT 1 FROM bays b WHERE b.queue = v_queue) AS laned,
                   EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 3) AS solo
              INTO v_look;
            EXIT WHEN v_look.paused OR again = 2 OR v_look.due IS NULL OR v_look.due > v_now;
            PERFORM promote_some(v_queue, 500, v_now, v_locked);
        END LOOP;
        CONTINUE WHEN v_look.paused;
        v_next := least(v_next, v_look.due);
        IF NOT v_locked AND (v_look.laned OR v_look.solo) THEN
            -- They came after the look that decides about the lock.
            v_next := v_now;
            v_look.laned := false;
            v_look.solo := false;
        END IF;
        v_room := greatest(0, least(p_limits[i], v_left));
        v_merged := v_look.laned AND NOT p_solo;
        v_keyed := v_merged OR p_solo;
        IF v_look.solo AND NOT p_solo THEN
            v_with_solo := v_with_solo || v_queue;
        END IF;
        IF v_look.laned AND NOT p_solo THEN
            v_with_lanes := v_with_lanes || v_queue;
        END IF;
        CONTINUE WHEN v_room = 0;

        IF p_solo THEN
            CONTINUE WHEN NOT v_look.solo;
            SELECT s.* INTO v_solo FROM find_solo(v_queue, v_now, true) AS s;
            v_expired := v_expired || end_waiting(v_solo.expired, 5, 'expired', v_now);
            v_next := least(v_next, to_timestamp(0) + v_solo.opens_at * interval '1 microsecond');
            CONTINUE WHEN v_solo.job IS NULL;
            v_take := ARRAY(SELECT j.seq FROM jobs j
                             WHERE j.seq = v_solo.job AND j.ready + 0 = 3 FOR UPDATE SKIP LOCKED);
            CONTINUE WHEN v_take = '{}';
        ELSE
            IF v_look.laned THEN
                UPDATE bays b SET opens_at = 0
                 WHERE b.id = ANY (ARRAY(
                           SELECT t.id FROM bays t
                            WHERE t.queue = v_queue AND t.opens_at > 0
                              AND t.opens_at <= us_of(v_now)
                            ORDER BY t.opens_at LIMIT 500));
                -- Also of lanes in closed bays: behind the first one may stand one that needs less.
                v_late := ARRAY(
                    SELECT j.seq FROM jobs j
                     WHERE j.queue = v_queue AND j.ready = 2 AND j.expires_at IS NOT NULL
                       AND j.expires_at <= v_now
                     ORDER BY j.expires_at LIMIT greatest(v_expiries, 0));
                IF v_late <> '{}' THEN
                    v_expiries := v_expiries - cardinality(v_late);
                    v_expired := v_expired || end_waiting(v_late, 5, 'expired', v_now);
                END IF;
            END IF;
            -- The best of the common line. Those that have expired are discarded, and others looked
            -- for in their place.
            v_take := '{}';
            v_priorities := '{}';
            v_dues := '{}';
            LOOP
                SELECT v_take || coalesce(array_agg(c.seq) FILTER (WHERE NOT c.late), '{}'),
                       CASE WHEN v_look.laned THEN v_priorities
                           || coalesce(array_agg(c.priority) FILTER (WHERE NOT c.late), '{}') END,
                       CASE WHEN v_look.laned THEN v_dues
                           || coalesce(array_agg(c.due) FILTER (WHERE NOT c.late), '{}') END,
                       array_agg(c.seq) FILTER (WHERE c.late),
                       v_keyed OR coalesce(bool_or(c.key_window = 'until_started'), false)
                  INTO v_take, v_priorities, v_dues, v_late, v_keyed
                  FROM (SELECT j.seq, j.priority, j.due, j.key_window,
                               coalesce(j.expires_at <= v_now, false) AS late
                          FROM jobs j
                         WHERE j.queue = v_queue AND j.ready = 1 AND j.seq <> ALL (v_take)
                         ORDER BY j.priority, j.due, j.seq
                         LIMIT v_room - cardinality(v_take) FOR UPDATE SKIP LOCKED) AS c;
                EXIT WHEN v_late IS NULL;
                v_expiries := v_expiries - cardinality(v_late);
                v_expired := v_expired || end_waiting(v_late, 5, 'expired', v_now);
                IF v_expiries <= 0 THEN
                    v_next := v_now;
                    EXIT;
                END IF;
            END LOOP;
        END IF;

        IF v_merged THEN
            SELECT v.chosen, v.started, v.charged, v.cut_short INTO v_visited
              FROM visit_lanes(v_queue, v_room, p_worker, v_now, v_take, v_priorities, v_dues) AS v;
            v_take := v_visited.chosen;
            v_started := v_visited.started;
            v_charged := v_charged || v_visited.charged;
            IF v_visited.cut_short THEN
                v_next := v_now;
            END IF;
        END IF;

        IF v_merged THEN
            UPDATE jobs j
               SET state = 1, ready = NULL, attempt = j.attempt + 1,
                   claim_number = j.claim_number + 1, started_at = v_now, worker = p_worker,
                   cancel_requested = false, progress = NULL, progress_note = NULL
             WHERE j.seq = ANY (v_take);
            v_take := v_take || v_started;
            RETURN QUERY
            SELECT j.seq, uuid_send(j.id), j.claim_number, j.attempt, j.max_attempts, j.budget,
                   j.due, j.timeout, j.queue, j.task, j.payload, extras_of(j), j.priority
              FROM jobs j WHERE j.seq = ANY (v_take);
        ELSIF v_take <> '{}' THEN
            RETURN QUERY
            UPDATE jobs j
               SET state = 1, ready = NULL, attempt = j.attempt + 1,
                   claim_number = j.claim_number + 1, started_at = v_now, worker = p_worker,
                   cancel_requested = false, progress = NULL, progress_note = NULL
             WHERE j.seq = ANY (v_take)
            RETURNING j.seq, uuid_send(j.id), j.claim_number, j.attempt, j.max_attempts, j.budget,
                      j.due, j.timeout, j.queue, j.task, j.payload, extras_of(j), j.priority;
            IF p_solo THEN
                PERFORM charge_gates(j.gates, j.costs, j.seq, j.claim_number, us_of(v_now))
                   FROM jobs j WHERE j.seq = ANY (v_take) AND j.gates IS NOT NULL;
                v_charged := ARRAY(SELECT unnest(j.gates) FROM jobs j WHERE j.seq = ANY (v_take));
            END IF;
        END IF;
        v_left := v_left - cardinality(v_take);
        IF v_keyed THEN
            v_claimed := v_claimed || v_take;
        END IF;
    END LOOP;

    IF v_claimed <> '{}' THEN
        -- Keys held until the start.
        PERFORM free_keys(array_agg(j.key), array_agg(j.seq))
           FROM jobs j WHERE j.seq = ANY (v_claimed) AND j.key_window = 'until_started';
    END IF;
    IF v_charged <> '{}' THEN
        PERFORM postpone_bays(v_charged, us_of(v_now));
    END IF;
    -- What comes next, now that every queue has taken from the gates what it wanted.
    FOR i IN 1 .. cardinality(v_with_lanes) LOOP
        v_next := least(v_next, (SELECT to_timestamp(0) + b.opens_at * interval '1 microsecond'
                                   FROM bays b WHERE b.queue = v_with_lanes[i] AND b.opens_at > 0
                                  ORDER BY b.opens_at LIMIT 1));
    END LOOP;
    FOR i IN 1 .. cardinality(v_with_solo) LOOP
        SELECT s.* INTO v_solo FROM find_solo(v_with_solo[i], v_now, false) AS s;
        v_solo_due := v_solo_due OR v_solo.job IS NOT NULL;
        v_next := least(v_next, to_timestamp(0) + v_solo.opens_at * interval '1 microsecond');
    END LOOP;
    seq := NULL;
    id := NULL;
    number := 1;
    attempt := v_solo_due::integer;
    due := v_now;
    timeout := us_of(v_next);
    queue := NULL;
    task := NULL;
    payload := NULL;
    extras := v_expired;
    RETURN NEXT;
END $$;
