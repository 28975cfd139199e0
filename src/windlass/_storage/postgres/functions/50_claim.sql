-- Giving ready jobs to workers.

-- Where a part stands, for `extras_of`.
CREATE OR REPLACE FUNCTION part_place(p_flow uuid, p_number integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT replace(p_flow::text, '-', '') || ' ' || p_number::text
$$;

-- What few jobs carry, for `claim_jobs`; NULL for one that carries nothing. The last of a member: its
-- place, and whether it was added. p_place: the flow's id and the number of the part. Most members carry
-- nothing else: theirs is one array of constants. With a subquery in it this function would be called for
-- every job, in place of being put into the statement: so the caller looks up the places, once per part.
CREATE OR REPLACE FUNCTION extras_of(j jobs, p_place text) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN coalesce(j.error_kind, j.correlation_id, j.principal, j.tenant, j.trace,
                              j.tags, j.backoff, j.on_failure, j.on_lost) IS NOT NULL
                     OR j.missed_at IS NOT NULL OR j.lost > 0 OR j.solo
                THEN ARRAY[j.lost::text, CASE WHEN j.solo THEN '1' END,
                           CASE WHEN j.missed_at IS NOT NULL THEN us_of(j.missed_at)::text END,
                           j.backoff, j.error_kind, j.error_message, j.tenant, j.principal,
                           j.correlation_id, j.trace, j.tags]
                     || CASE WHEN j.part IS NOT NULL
                             THEN ARRAY[j.on_failure, j.on_lost,
                                        CASE WHEN j.added THEN p_place || ' added' ELSE p_place END]
                             WHEN j.on_lost IS NOT NULL THEN ARRAY[j.on_failure, j.on_lost]
                             WHEN j.on_failure IS NOT NULL THEN ARRAY[j.on_failure] END
                WHEN j.part IS NOT NULL
                THEN ARRAY['0', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                           CASE WHEN j.added THEN p_place || ' added' ELSE p_place END]
           END
$$;

-- Which locks a claim on these queues needs. Where no queue has lanes, limited jobs that fall due, solo
-- jobs, a cool-down by a clock that was set back, or a number of jobs that may run at once, there is
-- nothing to lock.
--   lanes    `lock_limits` is needed, with these limits, which may be none
--   queues   `lock_queues` is needed
CREATE OR REPLACE FUNCTION claim_locks(
    p_queues text[], p_now timestamptz, OUT lanes boolean, OUT queues boolean, OUT limits text[]
)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT bool_or(
               EXISTS (SELECT 1 FROM lane_digests l WHERE l.queue = q.queue)
               OR EXISTS (SELECT 1 FROM jobs j WHERE j.queue = q.queue AND j.ready = 3)
               OR (EXISTS (SELECT 1 FROM queues c WHERE c.name = q.queue AND c.cool_until > p_now)
                   AND is_set_back(us_of(p_now)))
               OR EXISTS (SELECT 1 FROM (SELECT j.gates, j.solo FROM jobs j
                                          WHERE j.queue BETWEEN q.queue AND q.queue
                                            AND j.ready = 0 AND j.due <= p_now
                                          ORDER BY j.queue, j.due, j.seq LIMIT 500) AS d
                           WHERE d.solo OR d.gates IS NOT NULL)),
           bool_or((SELECT c.max_running FROM queues c WHERE c.name = q.queue) IS NOT NULL)
      INTO lanes, queues FROM unnest(p_queues) AS q (queue);
    IF lanes THEN
        limits := ARRAY(
            SELECT DISTINCT n.name
              FROM (SELECT l.name FROM lane_limits l WHERE l.queue = ANY (p_queues)
                    UNION ALL
                    SELECT split_part(g, ':', 1)
                      FROM unnest(p_queues) AS q (queue)
                     CROSS JOIN LATERAL (
                           (SELECT j.gates FROM jobs j
                             WHERE j.queue BETWEEN q.queue AND q.queue AND j.ready = 0
                               AND j.due <= p_now
                             ORDER BY j.queue, j.due, j.seq LIMIT 500)
                           UNION ALL
                           (SELECT j.gates FROM jobs j WHERE j.queue = q.queue AND j.ready = 3
                             ORDER BY j.priority, j.due, j.seq LIMIT 65)) AS d,
                           unnest(d.gates) AS g) AS n);
    END IF;
END $$;

-- `JobStore.claim`. p_queues and p_limits are the wants, side by side. p_known: the newest schema
-- version that the caller knows. A stored one of a newer major gives nothing: WL020, it as the detail.
-- p_head_start: how long (in microseconds) jobs that were missed are left to others after they are due.
-- p_locks: false in a transaction that has locked jobs before. No lock may be waited for then. The caller
-- has taken those of the limits p_held (NULL: none) and of the queues p_counted, as `claim_locks` says;
-- jobs that need others are left to the next claim. p_settles: false if the transaction has settled what it
-- can before.
--
-- Returns the claimed jobs, want by want, those of one want in any order (the caller sorts them: that
-- costs the server more); extras: see `extras_of`. The last row is about the claim itself: seq NULL; number 0 if the worker
-- is not live; attempt 1 if a solo job is due; due, the store's now; timeout, when something
-- becomes claimable (microseconds since the epoch); extras, the ids of the jobs that were discarded.
CREATE OR REPLACE FUNCTION claim_jobs(
    p_at timestamptz, p_worker text, p_queues text[], p_limits integer[], p_total integer,
    p_solo boolean, p_known integer DEFAULT NULL, p_head_start bigint DEFAULT 0,
    p_locks boolean DEFAULT true, p_held text[] DEFAULT NULL, p_counted text[] DEFAULT NULL,
    p_settles boolean DEFAULT true
) RETURNS TABLE (
    seq bigint, id bytea, number integer, attempt integer, max_attempts integer, budget integer,
    due timestamptz, timeout bigint, queue text, task text, payload bytea, extras text[],
    priority integer
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_left integer := CASE WHEN p_solo THEN least(p_total, 1) ELSE p_total END;
    v_head_start interval := p_head_start * interval '1 microsecond';
    v_promoted integer;
    v_room integer;
    v_running_room integer;
    v_expiries integer := 500;
    v_needs record;
    v_held text[];
    v_counted text[];
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
    v_parts bigint[];
    v_places text[];
    v_claimed bigint[] := '{}';
    v_visited record;
    v_solo record;
    v_solo_due boolean := false;
    v_with_solo text[] := '{}';
    v_with_lanes text[] := '{}';
    v_expired text[] := '{}';
    v_charged text[] := '{}';
    v_taken boolean := false;
    v_set_back boolean := false;
    v_live boolean;
    v_flows boolean;
    v_void bigint[];
    v_voided boolean := false;
BEGIN
    IF EXISTS (SELECT 1 FROM schema_versions s
                WHERE s.version >= (coalesce(p_known, 0) / 100 + 1) * 100) THEN
        RAISE EXCEPTION 'the schema is newer than the caller knows'
            USING ERRCODE = 'WL020', DETAIL = (SELECT max(s.version) FROM schema_versions s);
    END IF;
    -- Declaring a worker dead and a claim need not exclude each other: every sweep ends the claims of workers that are not
    -- live, also those of a claim that raced it.
    SELECT EXISTS (SELECT 1 FROM workers w WHERE w.id = p_worker AND w.state = 'live'),
           EXISTS (SELECT 1 FROM flows)
      INTO v_live, v_flows;
    IF NOT v_live THEN
        number := 0;
        attempt := 0;
        due := v_now;
        RETURN NEXT;
        RETURN;
    END IF;
    -- A claim that a crash of the server takes back would be given to another worker under the
    -- same number, so it is always durable.
    PERFORM commit_durably(true);
    IF p_locks THEN
        SELECT l.lanes, l.queues, l.limits INTO v_needs FROM claim_locks(p_queues, v_now) AS l;
        IF v_needs.lanes THEN
            v_held := v_needs.limits;
            v_set_back := is_set_back(us_of(v_now));
            IF v_set_back THEN
                PERFORM lock_all_limits();
            END IF;
            PERFORM lock_limits(v_held);
        END IF;
        IF v_needs.queues THEN
            v_counted := lock_queues(p_queues);
        END IF;
        -- The time that was spent waiting must not look like a clock that was set back.
        v_now := coalesce(p_at, clock_timestamp());
        IF v_set_back THEN
            PERFORM mend_gates(us_of(v_now));
        END IF;
    ELSE
        v_held := p_held;
        v_counted := p_counted;
    END IF;
    IF p_settles AND v_flows AND has_due_parts(v_now) THEN
        PERFORM settle_some(500, v_now);
    END IF;

    FOR i IN 1 .. coalesce(cardinality(p_queues), 0) LOOP
        v_queue := p_queues[i];
        FOR again IN 1 .. 2 LOOP
            SELECT q.paused, q.max_running, q.cool_until,
                   (SELECT j.due FROM jobs j
                     WHERE j.queue BETWEEN v_queue AND v_queue AND j.ready = 0
                     ORDER BY j.queue, j.due LIMIT 1) AS due,
                   EXISTS (SELECT 1 FROM lane_digests l WHERE l.queue = v_queue) AS laned,
                   EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 3) AS solo
              INTO v_look
              FROM (SELECT 1) AS one LEFT JOIN queues q ON q.name = v_queue;
            EXIT WHEN v_look.paused OR v_look.cool_until > v_now OR again = 2 OR v_look.due IS NULL OR v_look.due > v_now;
            v_promoted := promote_jobs(v_queue, 500, v_now, v_held, v_now - v_head_start);
        END LOOP;
        CONTINUE WHEN v_look.paused;
        IF v_look.cool_until > v_now THEN
            v_next := least(v_next, v_look.cool_until);
            CONTINUE;
        END IF;
        IF p_head_start > 0 AND v_look.due <= v_now AND v_promoted < 500 THEN
            v_look.due := least(v_look.due + v_head_start,
                                (SELECT j.due FROM jobs j
                                  WHERE j.queue BETWEEN v_queue AND v_queue AND j.ready = 0
                                    AND j.due > v_now
                                  ORDER BY j.queue, j.due LIMIT 1));
        END IF;
        v_next := least(v_next, v_look.due);
        IF v_look.max_running IS NOT NULL AND v_queue = ANY (v_counted) IS NOT TRUE THEN
            -- It was given after the look that decides about the lock.
            v_next := v_now;
            CONTINUE;
        END IF;
        IF v_held IS NULL AND (v_look.laned OR v_look.solo) THEN
            -- They came after the look that decides about the lock.
            v_next := v_now;
            v_look.laned := false;
            v_look.solo := false;
        END IF;
        v_room := greatest(0, least(p_limits[i], v_left));
        IF v_look.max_running IS NOT NULL THEN
            v_running_room := room_in(v_queue, v_look.max_running);
            CONTINUE WHEN v_running_room <= 0;  -- only an end, which wakes, changes that
            v_room := least(v_room, v_running_room);
        END IF;
        v_merged := v_look.laned AND NOT p_solo;
        v_keyed := p_solo;
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
            v_expired := v_expired || end_waiting(
                ARRAY(SELECT j.seq FROM jobs j WHERE j.seq = ANY (v_solo.expired)
                         AND j.expires_at <= v_now  -- a replacement renews that
                       FOR UPDATE SKIP LOCKED), 5, 'expired', v_now, true);
            v_next := least(v_next, to_timestamp(0) + v_solo.opens_at * interval '1 microsecond');
            CONTINUE WHEN v_solo.job IS NULL;
            v_take := ARRAY(SELECT j.seq FROM jobs j
                             WHERE j.seq = v_solo.job AND j.ready + 0 = 3 FOR UPDATE SKIP LOCKED);
            -- Judged once more: what it needs may have been replaced before it was locked.
            CONTINUE WHEN v_take = '{}' OR EXISTS (
                SELECT 1 FROM jobs j, LATERAL find_shut(j.gates, j.costs, us_of(v_now)) AS s
                 WHERE j.seq = v_solo.job AND s.gate IS NOT NULL);
            IF NOT limits_of_jobs(v_take) <@ v_held THEN
                -- It came after the look that decides about the locks.
                v_next := v_now;
                CONTINUE;
            END IF;
            SELECT array_agg(p.id), array_agg(part_place(p.flow_id, p.number))
              INTO v_parts, v_places FROM parts p
             WHERE p.id = ANY (ARRAY(SELECT j.part FROM jobs j WHERE j.seq = ANY (v_take)));
            v_void := members_cancelled(v_take);
            IF v_void <> '{}' THEN
                PERFORM end_waiting(v_void, 4, NULL, v_now, true);
                v_voided := true;
                v_next := v_now;
                CONTINUE;
            END IF;
        ELSE
            IF v_look.laned THEN
                UPDATE bays b SET opens_at = 0
                 WHERE b.id = ANY (ARRAY(
                           SELECT t.id FROM bays t
                            WHERE t.queue = v_queue AND t.opens_at > 0
                              AND t.opens_at <= us_of(v_now)
                              AND split_part(t.gate, ':', 1) = ANY (v_held)
                            ORDER BY t.opens_at LIMIT 500));
                -- Also of lanes in closed bays: behind the first one may stand one that needs less.
                v_late := ARRAY(
                    SELECT j.seq FROM jobs j
                     WHERE j.queue = v_queue AND j.ready = 2 AND j.expires_at IS NOT NULL
                       AND j.expires_at <= v_now AND limits_of(j.gates) <@ v_held
                     ORDER BY j.expires_at LIMIT greatest(v_expiries, 0)
                       FOR UPDATE SKIP LOCKED);
                IF v_late <> '{}' THEN
                    v_expiries := v_expiries - cardinality(v_late);
                    v_expired := v_expired || end_waiting(v_late, 5, 'expired', v_now, true);
                END IF;
            END IF;
            -- The best of the common line. Those that have expired are discarded, and others looked
            -- for in their place.
            v_take := '{}';
            v_priorities := '{}';
            v_dues := '{}';
            v_parts := NULL;
            LOOP
                SELECT v_take || coalesce(array_agg(c.seq) FILTER (WHERE NOT c.late), '{}'),
                       CASE WHEN v_look.laned THEN v_priorities
                           || coalesce(array_agg(c.priority) FILTER (WHERE NOT c.late), '{}') END,
                       CASE WHEN v_look.laned THEN v_dues
                           || coalesce(array_agg(c.due) FILTER (WHERE NOT c.late), '{}') END,
                       array_agg(c.seq) FILTER (WHERE c.late),
                       v_keyed OR coalesce(bool_or(c.key_window = 'until_started'), false),
                       v_parts || array_agg(c.part) FILTER (WHERE c.part IS NOT NULL)
                  INTO v_take, v_priorities, v_dues, v_late, v_keyed, v_parts
                  FROM (SELECT j.seq, j.priority, j.due, j.part, j.key_window,
                               coalesce(j.expires_at <= v_now, false) AS late
                          FROM jobs j
                         WHERE j.queue = v_queue AND j.ready = 1 AND j.seq <> ALL (v_take)
                         ORDER BY j.priority, j.due, j.seq
                         LIMIT v_room - cardinality(v_take) FOR UPDATE SKIP LOCKED) AS c;
                IF v_parts IS NOT NULL THEN
                    SELECT array_agg(p.id), array_agg(part_place(p.flow_id, p.number)),
                           CASE WHEN EXISTS (SELECT 1 FROM flows f WHERE f.cancelled AND f.state = 0)
                                THEN members_cancelled(v_take) ELSE '{}' END
                      INTO v_parts, v_places, v_void FROM parts p WHERE p.id = ANY (v_parts);
                    IF v_void <> '{}' THEN
                        -- The cancel of their flow has not reached them yet.
                        PERFORM end_waiting(v_void, 4, NULL, v_now, true);
                        v_voided := true;
                        v_expiries := v_expiries - cardinality(v_void);
                        SELECT array_agg(t.seq ORDER BY t.n), array_agg(t.priority ORDER BY t.n),
                               array_agg(t.due ORDER BY t.n)
                          INTO v_take, v_priorities, v_dues
                          FROM unnest(v_take, v_priorities, v_dues) WITH ORDINALITY
                               AS t (seq, priority, due, n)
                         WHERE t.seq <> ALL (v_void);
                        v_take := coalesce(v_take, '{}');
                        v_priorities := coalesce(v_priorities, '{}');
                        v_dues := coalesce(v_dues, '{}');
                        v_late := coalesce(v_late, '{}');
                    END IF;
                END IF;
                EXIT WHEN v_late IS NULL;
                v_expiries := v_expiries - cardinality(v_late);
                v_expired := v_expired || end_waiting(v_late, 5, 'expired', v_now, true);
                IF v_expiries <= 0 THEN
                    v_next := v_now;
                    EXIT;
                END IF;
            END LOOP;
        END IF;

        IF v_merged THEN
            SELECT v.chosen, v.started, v.charged, v.keyed, v.cut_short INTO v_visited
              FROM serve_lanes(
                       v_queue, v_room, p_worker, v_now, v_held, v_take, v_priorities, v_dues) AS v;
            v_take := v_visited.chosen;
            v_started := v_visited.started;
            v_charged := v_charged || v_visited.charged;
            v_taken := v_taken OR v_started <> '{}';
            v_keyed := v_keyed OR v_visited.keyed;
            IF v_visited.cut_short THEN
                v_next := v_now;
            END IF;
        END IF;

        IF v_merged THEN
            IF v_take <> '{}' THEN
                UPDATE jobs j
                   SET state = 1, ready = NULL, attempt = j.attempt + 1,
                       claim_number = j.claim_number + 1, started_at = v_now, worker = p_worker,
                       cancel_requested = false, progress = NULL, progress_note = NULL
                 WHERE j.seq = ANY (v_take);
            END IF;
            v_take := v_take || v_started;
            IF v_flows THEN
                SELECT array_agg(p.id), array_agg(part_place(p.flow_id, p.number))
                  INTO v_parts, v_places FROM parts p
                 WHERE p.id = ANY (ARRAY(SELECT j.part FROM jobs j WHERE j.seq = ANY (v_take)));
            END IF;
            RETURN QUERY
            SELECT j.seq, uuid_send(j.id), j.claim_number, j.attempt, j.max_attempts, j.budget,
                   j.due, j.timeout, j.queue, j.task, j.payload,
                   extras_of(j, v_places[array_position(v_parts, j.part)]), j.priority
              FROM jobs j WHERE j.seq = ANY (v_take);
        ELSIF v_take <> '{}' THEN
            RETURN QUERY
            UPDATE jobs j
               SET state = 1, ready = NULL, attempt = j.attempt + 1,
                   claim_number = j.claim_number + 1, started_at = v_now, worker = p_worker,
                   cancel_requested = false, progress = NULL, progress_note = NULL
             WHERE j.seq = ANY (v_take)
            RETURNING j.seq, uuid_send(j.id), j.claim_number, j.attempt, j.max_attempts, j.budget,
                      j.due, j.timeout, j.queue, j.task, j.payload,
                      extras_of(j, v_places[array_position(v_parts, j.part)]), j.priority;
            IF p_solo THEN
                PERFORM charge_gates(j.gates, j.costs, j.seq, j.claim_number, us_of(v_now))
                   FROM jobs j WHERE j.seq = ANY (v_take) AND j.gates IS NOT NULL;
                v_charged := ARRAY(SELECT unnest(j.gates) FROM jobs j WHERE j.seq = ANY (v_take));
                v_taken := v_charged <> '{}';
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
    IF v_voided OR v_expired <> '{}'
       OR (v_flows AND v_with_lanes <> '{}' AND EXISTS (SELECT 1 FROM member_ends)) THEN
        PERFORM fold_ends(v_now);
    END IF;
    IF v_taken THEN
        PERFORM mark_charged(us_of(v_now));
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
        CONTINUE WHEN v_with_solo[i] = ANY (v_counted) AND room_in(
            v_with_solo[i],
            (SELECT q.max_running FROM queues q WHERE q.name = v_with_solo[i])) <= 0;
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

-- `JobStore.apply` and `JobStore.claim` in one transaction, for successes as `apply_successes` takes
-- them and a claim that is not solo. The claim reads the clock after the locks: what it takes from a rate
-- must not lie in the past.
--
-- The locks of both halves come before the first row, in one order: limits, queues, jobs. So the limits of
-- the jobs that end and those that the claim needs are locked together. Where the ends need the lock of
-- cool-downs, or the claim all limits, nothing is done: one row with number 2, and the caller does the
-- halves apart.
--
-- Else the first row is about the ends: seq NULL; number 1; attempt 1 if they may make other jobs ready,
-- by a limit, their queue or their flow; timeout, the only job that they make ready, where it is known; due,
-- the store's now; extras, the verdicts and behind them the verbs (NULL: all were applied). The others are
-- those of `claim_jobs`.
CREATE OR REPLACE FUNCTION end_and_claim(
    p_at timestamptz, p_durable boolean, p_seqs bigint[], p_number integer, p_by text, p_result bytea,
    p_worker text, p_queues text[], p_limits integer[], p_total integer, p_known integer,
    p_head_start bigint
) RETURNS TABLE (
    seq bigint, id bytea, number integer, attempt integer, max_attempts integer, budget integer,
    due timestamptz, timeout bigint, queue text, task text, payload bytea, extras text[],
    priority integer
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_needs record;
    v_limits text[] := limits_of_claims(p_seqs, p_number);
    v_counted text[];
    v_ends record;
BEGIN
    SELECT l.lanes, l.queues, l.limits INTO v_needs FROM claim_locks(p_queues, v_now) AS l;
    IF (v_needs.lanes AND is_set_back(us_of(v_now))) OR may_forgive(p_seqs, v_now) THEN
        number := 2;
        RETURN NEXT;
        RETURN;
    END IF;
    IF v_needs.lanes OR v_limits <> '{}' THEN
        PERFORM lock_limits(v_limits || v_needs.limits);
    END IF;
    IF v_needs.queues THEN
        v_counted := lock_queues(p_queues);
    END IF;
    attempt := (EXISTS (SELECT 1 FROM holds)
                OR EXISTS (SELECT 1 FROM queues q WHERE q.max_running IS NOT NULL))::integer;
    SELECT a.* INTO v_ends
      FROM apply_successes(v_now, p_durable, p_seqs, p_number, p_by, p_result) AS a;
    IF v_ends.placed THEN
        timeout := CASE WHEN attempt = 0 AND cardinality(v_ends.opened) = 1 AND v_ends.opened[1] > 0
                        THEN v_ends.opened[1] END;
        attempt := 1;
    END IF;
    number := 1;
    due := v_ends.at;
    extras := v_ends.verdicts || v_ends.verbs;
    RETURN NEXT;
    RETURN QUERY
    SELECT c.* FROM claim_jobs(coalesce(p_at, clock_timestamp()), p_worker, p_queues, p_limits, p_total,
                               false, p_known, p_head_start, false, v_needs.limits, v_counted,
                               v_ends.placed IS DISTINCT FROM false) AS c;
END $$;
