-- Ending claims, cancelling, and what callers ask about jobs.

-- --- rollups ------------------------------------------------------------------------------------

-- The verbs that end a claim, in the order in which `rollups.counts` counts them.
CREATE FUNCTION finishing_verbs() RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT '{succeed,retry,snooze,throttle,release,fail,cancel}'::text[]
$$;

-- Where the buckets from 1 on begin, in microseconds: bucket_of in core/rollup.py, exact below 8,
-- then four per doubling. So a bucket is width_bucket(us, bucket_bottoms()).
CREATE FUNCTION bucket_bottoms() RETURNS bigint[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(CASE WHEN b < 8 THEN b::bigint
                          ELSE (4 + (b + 4) % 4)::bigint << ((b + 4) / 4 - 2) END ORDER BY b)
      FROM generate_series(1, 239) AS b
$$;

-- A span in whole microseconds.
CREATE FUNCTION span_us(p_from timestamptz, p_to timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (date_part('epoch', p_to - p_from) * 1000000)::bigint
$$;

-- Count accepted finishes of one queue, task and worker: their verbs (by place in
-- `finishing_verbs`), how long they waited and ran (buckets), an entry each.
CREATE FUNCTION add_rollup(
    p_now timestamptz, p_queue text, p_task text, p_worker text,
    p_verbs integer[], p_wait integer[], p_run integer[]
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_minute timestamptz := date_trunc('minute', p_now);
    v_counts bigint[];
    v_wait bigint[];
    v_run bigint[];
    v_part record;
BEGIN
    LOOP
        SELECT r.counts, r.wait, r.run INTO v_counts, v_wait, v_run FROM rollups r
         WHERE r.minute = v_minute AND r.queue = p_queue AND r.task = p_task
           AND r.worker = p_worker
           FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO rollups (minute, queue, task, worker, counts, wait, run)
        VALUES (v_minute, p_queue, p_task, p_worker, '{0,0,0,0,0,0,0}', '{}', '{}')
        ON CONFLICT DO NOTHING;
    END LOOP;
    -- Most entries share a few buckets.
    FOR v_part IN SELECT e.n, count(*) AS many FROM unnest(p_verbs) AS e (n) GROUP BY e.n LOOP
        v_counts[v_part.n] := v_counts[v_part.n] + v_part.many;
    END LOOP;
    FOR v_part IN SELECT e.n, count(*) AS many FROM unnest(p_wait) AS e (n) GROUP BY e.n LOOP
        v_wait[v_part.n] := coalesce(v_wait[v_part.n], 0) + v_part.many;
    END LOOP;
    FOR v_part IN SELECT e.n, count(*) AS many FROM unnest(p_run) AS e (n) GROUP BY e.n LOOP
        v_run[v_part.n] := coalesce(v_run[v_part.n], 0) + v_part.many;
    END LOOP;
    UPDATE rollups r SET counts = v_counts, wait = v_wait, run = v_run
     WHERE r.minute = v_minute AND r.queue = p_queue AND r.task = p_task AND r.worker = p_worker;
END $$;

-- Rollups as they are stored, with p_since <= minute < p_until: for each histogram, which bucket
-- its first entry is of. Readers merge those of different workers.
CREATE FUNCTION read_rollups(p_since timestamptz, p_until timestamptz)
RETURNS TABLE (
    minute timestamptz, queue text, task text, verbs text[], counts bigint[],
    wait_from integer, wait bigint[], run_from integer, run bigint[]
)
LANGUAGE sql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
    SELECT r.minute, r.queue, r.task, finishing_verbs(), r.counts, array_lower(r.wait, 1),
           r.wait, array_lower(r.run, 1), r.run
      FROM rollups r
     WHERE r.minute >= p_since AND r.minute < p_until
     ORDER BY r.minute, r.queue, r.task
$$;

-- --- ending claims ------------------------------------------------------------------------------

-- One transition that is no plain success; see `apply_transitions` for the arguments. The caller
-- has called `lock_lanes` if the job has limits.
--   verdict, verb   the answer
--   gates           what came back
--   place           whether the job is to be placed (`place_waiting`)
CREATE FUNCTION apply_transition(
    p_now timestamptz, p_seq bigint, p_number integer, p_verb text, p_by text, p_delay bigint,
    p_refund boolean, p_result bytea, p_error_kind text, p_error_message text,
    p_error_traceback text, p_lost integer, p_solo boolean, p_missed boolean,
    p_if_cancelled text, p_keep boolean,
    OUT verdict text, OUT verb text, OUT opened text[], OUT place boolean
)
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_job record;
    v_due timestamptz;
    v_state integer;
    v_returns boolean;
BEGIN
    SELECT j.state, j.claim_number, j.cancel_requested, j.queue, j.task, j.worker, j.due,
           j.started_at, j.attempt, j.key, j.key_window, j.gates, j.missed_at,
           j.ended_number, j.ended_verb, j.ended_by
      INTO v_job FROM jobs j WHERE j.seq = p_seq FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'unknown';
        RETURN;
    ELSIF v_job.state <> 1 OR v_job.claim_number <> p_number THEN
        -- Because this very caller has ended it, or for another reason.
        IF v_job.ended_number = p_number AND v_job.ended_by = p_by THEN
            verdict := 'repeated';
            verb := v_job.ended_verb;
        ELSE
            verdict := 'refused';
        END IF;
        RETURN;
    END IF;
    verdict := 'applied';
    verb := p_verb;
    IF v_job.cancel_requested AND p_if_cancelled IS NOT NULL THEN
        verb := p_if_cancelled;
    END IF;
    IF v_job.gates IS NOT NULL THEN
        DELETE FROM holds h WHERE h.gate = ANY (v_job.gates) AND h.seq = p_seq;
        opened := v_job.gates;
    END IF;
    v_state := CASE verb WHEN 'succeed' THEN 2 WHEN 'fail' THEN 3 WHEN 'cancel' THEN 4 ELSE 0 END;
    v_returns := v_state = 0;
    IF NOT v_returns AND v_job.key IS NOT NULL
       AND (NOT p_keep OR v_job.key_window <> 'for_a_time') THEN
        PERFORM free_keys(ARRAY[v_job.key], ARRAY[p_seq]);
    END IF;
    IF NOT v_returns AND NOT p_keep THEN
        DELETE FROM jobs j WHERE j.seq = p_seq;
        DELETE FROM history h WHERE h.seq = p_seq;
    ELSIF verb = 'succeed' THEN
        UPDATE jobs j
           SET state = 2, finished_at = p_now, ended_number = p_number, ended_verb = verb,
               ended_by = p_by, result = p_result, lost = 0, solo = false, missed_at = NULL,
               error_kind = NULL, error_message = NULL, error_traceback = NULL
         WHERE j.seq = p_seq;
    ELSE
        v_due := CASE WHEN v_returns THEN after(p_now, p_delay) ELSE v_job.due END;
        place := v_returns AND v_due <= p_now AND v_job.gates IS NOT NULL AND NOT p_solo;
        UPDATE jobs j
           SET state = v_state,
               ready = CASE WHEN NOT v_returns THEN NULL
                            WHEN v_due > p_now OR place THEN 0
                            WHEN p_solo THEN 3 ELSE 1 END,
               due = v_due,
               attempt = CASE WHEN v_returns AND p_refund THEN greatest(0, j.attempt - 1)
                              ELSE j.attempt END,
               finished_at = CASE WHEN NOT v_returns THEN p_now END,
               ended_number = p_number, ended_verb = verb, ended_by = p_by,
               lost = p_lost, solo = p_solo, result = NULL,
               missed_at = CASE WHEN verb = 'release'
                                THEN coalesce(j.missed_at, CASE WHEN p_missed THEN p_now END) END,
               error_kind = coalesce(p_error_kind, j.error_kind),
               error_message = CASE WHEN p_error_kind IS NULL THEN j.error_message
                                    ELSE p_error_message END,
               error_traceback = CASE WHEN p_error_kind IS NULL THEN j.error_traceback
                                      ELSE p_error_traceback END
         WHERE j.seq = p_seq;
        INSERT INTO history (seq, claim_number, attempt, verb, worker, started_at, ended_at,
                             error_kind, error_message, error_traceback)
        VALUES (p_seq, p_number, v_job.attempt, verb, v_job.worker, v_job.started_at, p_now,
                p_error_kind, p_error_message, p_error_traceback);
        -- Every claim that ends without success leaves a row, so the newest 32 have the newest 32
        -- numbers.
        IF p_number > 32 THEN
            DELETE FROM history h WHERE h.seq = p_seq AND h.claim_number <= p_number - 32;
        END IF;
    END IF;
    PERFORM add_rollup(
        p_now, v_job.queue, v_job.task, v_job.worker,
        ARRAY[array_position(finishing_verbs(), verb)],
        ARRAY[width_bucket(span_us(v_job.due, v_job.started_at), bucket_bottoms())],
        ARRAY[width_bucket(span_us(v_job.started_at, p_now), bucket_bottoms())]);
END $$;

-- Claims of these jobs have ended: their units come back, and whoever waits for them may ask again.
-- The caller has called `lock_lanes`.
CREATE FUNCTION give_back(p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    DELETE FROM holds h USING jobs j
     WHERE j.seq = ANY (p_seqs) AND h.gate = ANY (j.gates) AND h.seq = j.seq;
    PERFORM open_gates(ARRAY(SELECT DISTINCT g FROM jobs j, unnest(j.gates) AS g
                              WHERE j.seq = ANY (p_seqs)));
END $$;

-- `JobStore.apply`. Arrays side by side, one entry per transition (core/transition.py), best in the
-- order of p_seqs; one that no transition needs may be NULL as a whole. Verbs are names, delays
-- microseconds. p_if_cancelled NULL: a cancel request changes nothing.
--
-- Returns one row: the store's now and, side by side, verdicts (applied, repeated, refused,
-- unknown) and verbs; both NULL if every transition was applied as asked.
--
-- Plain successes are one statement; whatever frees a key, returns or fails is decided job by job. p_one_by_one: everything is, because one job is named twice and each must see what
-- the one before it did.
CREATE FUNCTION apply_transitions(
    p_at timestamptz, p_durable boolean,
    p_seqs bigint[], p_numbers integer[], p_verbs text[], p_bys text[],
    p_results bytea[] DEFAULT NULL, p_keeps boolean[] DEFAULT NULL,
    p_delays bigint[] DEFAULT NULL, p_refunds boolean[] DEFAULT NULL,
    p_error_kinds text[] DEFAULT NULL, p_error_messages text[] DEFAULT NULL,
    p_error_tracebacks text[] DEFAULT NULL, p_losts integer[] DEFAULT NULL,
    p_solos boolean[] DEFAULT NULL, p_misseds boolean[] DEFAULT NULL,
    p_if_cancelleds text[] DEFAULT NULL, p_one_by_one boolean DEFAULT false,
    OUT at timestamptz, OUT verdicts text[], OUT verbs text[]
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_count integer := coalesce(cardinality(p_seqs), 0);
    v_done integer := 0;
    v_group record;
    v_answer record;
    v_opened text[];
    v_place bigint[];
    v_place_at integer;
    v_limited boolean;
    v_done_seqs bigint[] := '{}';
BEGIN
    at := coalesce(p_at, clock_timestamp());
    PERFORM commit_durably(p_durable);
    -- A running job with limits holds something; where nobody does, there is nothing to look for.
    v_limited := EXISTS (SELECT 1 FROM holds)
        AND EXISTS (SELECT 1 FROM jobs j WHERE j.seq = ANY (p_seqs) AND j.gates IS NOT NULL);
    IF v_limited THEN
        PERFORM lock_lanes();
    END IF;
    FOR v_group IN
        WITH done AS (
            UPDATE jobs j
               SET state = 2, finished_at = at, ended_number = j.claim_number,
                   ended_verb = 'succeed', ended_by = t.by, result = t.result, lost = 0,
                   solo = false, missed_at = NULL, error_kind = NULL, error_message = NULL,
                   error_traceback = NULL
              FROM unnest(p_seqs, p_numbers, p_verbs, p_bys, p_results, p_keeps)
                   WITH ORDINALITY AS t (seq, number, verb, by, result, keep, n)
             WHERE NOT p_one_by_one
               AND j.seq = t.seq AND j.claim_number = t.number AND j.state + 0 = 1
               AND t.verb = 'succeed' AND t.keep IS NOT FALSE
               AND j.key IS NULL AND (v_limited OR j.gates IS NULL)
            RETURNING t.n::integer AS n, j.queue, j.task, j.worker,
                      width_bucket(span_us(j.due, j.started_at), bucket_bottoms()) AS wait,
                      width_bucket(span_us(j.started_at, at), bucket_bottoms()) AS run
        )
        SELECT d.queue, d.task, d.worker, array_agg(d.n) AS places, array_agg(d.wait) AS wait,
               array_agg(d.run) AS run
          FROM done d GROUP BY d.queue, d.task, d.worker ORDER BY 1, 2, 3
    LOOP
        PERFORM add_rollup(at, v_group.queue, v_group.task, v_group.worker,
                           array_fill(1, ARRAY[cardinality(v_group.places)]),
                           v_group.wait, v_group.run);
        v_done := v_done + cardinality(v_group.places);
        IF v_limited THEN
            v_done_seqs := v_done_seqs
                || ARRAY(SELECT p_seqs[n] FROM unnest(v_group.places) AS n);
        END IF;
        IF v_done < v_count OR verdicts IS NOT NULL THEN
            verdicts := coalesce(verdicts, array_fill(NULL::text, ARRAY[v_count]));
            FOREACH v_place_at IN ARRAY v_group.places LOOP
                verdicts[v_place_at] := 'applied';
            END LOOP;
        END IF;
    END LOOP;
    IF v_limited THEN
        PERFORM give_back(v_done_seqs);
    END IF;
    IF v_done = v_count THEN
        verdicts := NULL;
        RETURN;
    END IF;
    verdicts := coalesce(verdicts, array_fill(NULL::text, ARRAY[v_count]));
    verbs := p_verbs;
    FOR i IN 1 .. v_count LOOP
        CONTINUE WHEN verdicts[i] IS NOT NULL;
        SELECT a.* INTO v_answer FROM apply_transition(
            at, p_seqs[i], p_numbers[i], p_verbs[i], p_bys[i], coalesce(p_delays[i], 0),
            coalesce(p_refunds[i], false), p_results[i], p_error_kinds[i], p_error_messages[i],
            p_error_tracebacks[i], coalesce(p_losts[i], 0), coalesce(p_solos[i], false),
            coalesce(p_misseds[i], false), p_if_cancelleds[i], coalesce(p_keeps[i], true)) AS a;
        verdicts[i] := v_answer.verdict;
        verbs[i] := v_answer.verb;
        v_opened := v_opened || v_answer.opened;
        IF v_answer.place THEN
            v_place := v_place || p_seqs[i];
        END IF;
    END LOOP;
    IF v_place IS NOT NULL THEN
        PERFORM place_waiting(v_place, at);
    END IF;
    IF v_opened IS NOT NULL THEN
        PERFORM open_gates(v_opened);
    END IF;
END $$;

-- The same for the path of most jobs: successes under one claim number, by one worker, with one
-- result, kept, no job named twice. Those that free keys, or whose claim does not hold, go the long
-- way.
CREATE FUNCTION apply_successes(
    p_at timestamptz, p_durable boolean,
    p_seqs bigint[], p_number integer, p_by text, p_result bytea,
    OUT at timestamptz, OUT verdicts text[], OUT verbs text[]
)
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_group record;
    v_done bigint[] := '{}';
    v_rest bigint[];
    v_many integer;
    v_answer record;
    v_place integer;
    v_limited boolean;
BEGIN
    at := coalesce(p_at, clock_timestamp());
    PERFORM commit_durably(p_durable);
    v_limited := EXISTS (SELECT 1 FROM holds)
        AND EXISTS (SELECT 1 FROM jobs j WHERE j.seq = ANY (p_seqs) AND j.gates IS NOT NULL);
    IF v_limited THEN
        PERFORM lock_lanes();
    END IF;
    FOR v_group IN
        WITH done AS (
            UPDATE jobs j
               SET state = 2, finished_at = at, ended_number = p_number, ended_verb = 'succeed',
                   ended_by = p_by, result = p_result, lost = 0, solo = false, missed_at = NULL,
                   error_kind = NULL, error_message = NULL, error_traceback = NULL
             WHERE j.seq = ANY (p_seqs) AND j.claim_number = p_number AND j.state + 0 = 1
               AND j.key IS NULL AND (v_limited OR j.gates IS NULL)
            RETURNING j.seq, j.queue, j.task, j.worker,
                      width_bucket(span_us(j.due, j.started_at), bucket_bottoms()) AS wait,
                      width_bucket(span_us(j.started_at, at), bucket_bottoms()) AS run
        )
        SELECT d.queue, d.task, d.worker, array_agg(d.seq) AS seqs, array_agg(d.wait) AS wait,
               array_agg(d.run) AS run
          FROM done d GROUP BY d.queue, d.task, d.worker ORDER BY 1, 2, 3
    LOOP
        PERFORM add_rollup(at, v_group.queue, v_group.task, v_group.worker,
                           array_fill(1, ARRAY[cardinality(v_group.seqs)]),
                           v_group.wait, v_group.run);
        v_done := v_done || v_group.seqs;
    END LOOP;
    IF v_limited THEN
        PERFORM give_back(v_done);
    END IF;
    IF cardinality(v_done) = cardinality(p_seqs) THEN
        RETURN;
    END IF;
    v_rest := ARRAY(SELECT r.seq FROM unnest(p_seqs) AS r (seq) WHERE r.seq <> ALL (v_done)
                     ORDER BY r.seq);
    v_many := cardinality(v_rest);
    SELECT a.verdicts, a.verbs INTO v_answer FROM apply_transitions(
        at, p_durable, v_rest, array_fill(p_number, ARRAY[v_many]),
        array_fill('succeed'::text, ARRAY[v_many]), array_fill(p_by, ARRAY[v_many]),
        array_fill(p_result, ARRAY[v_many])) AS a;
    verdicts := array_fill('applied'::text, ARRAY[cardinality(p_seqs)]);
    verbs := array_fill('succeed'::text, ARRAY[cardinality(p_seqs)]);
    FOR i IN 1 .. CASE WHEN v_answer.verdicts IS NULL THEN 0 ELSE v_many END LOOP
        v_place := array_position(p_seqs, v_rest[i]);
        verdicts[v_place] := v_answer.verdicts[i];
        verbs[v_place] := v_answer.verbs[i];
    END LOOP;
END $$;

-- --- orders and questions -----------------------------------------------------------------------

-- `JobStore.report`: fenced, and nothing else happens.
CREATE FUNCTION report_progress(
    p_seqs bigint[], p_numbers integer[], p_fractions float8[], p_notes text[]
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    -- What it is worth is gone in a moment: nobody waits for a disk.
    PERFORM commit_durably(false);
    FOR i IN 1 .. cardinality(p_seqs) LOOP
        UPDATE jobs j SET progress = p_fractions[i], progress_note = p_notes[i]
         WHERE j.seq = p_seqs[i] AND j.claim_number = p_numbers[i] AND j.state + 0 = 1;
    END LOOP;
END $$;

-- `JobStore.cancel`: one answer per id, in order: cancelled, requested, too_late or unknown.
CREATE FUNCTION cancel_jobs(p_at timestamptz, p_durable boolean, p_ids uuid[]) RETURNS text[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_seqs bigint[];
    v_job record;
    v_waiting bigint[] := '{}';
    v_answer text;
    v_answers text[] := array_fill('unknown'::text, ARRAY[cardinality(p_ids)]);
    v_locked boolean := false;
BEGIN
    PERFORM commit_durably(p_durable);
    -- Somebody may be finishing one of these in a transaction of his own, which stays open.
    PERFORM set_config('lock_timeout', '5s', true);
    IF EXISTS (SELECT 1 FROM jobs j
                WHERE j.id = ANY (p_ids) AND j.gates IS NOT NULL AND j.state + 0 = 0) THEN
        PERFORM lock_lanes();
        v_locked := true;
        -- Everybody with limits waits behind this one now.
        PERFORM set_config('lock_timeout', '500ms', true);
    END IF;
    v_seqs := ARRAY(SELECT j.seq FROM jobs j WHERE j.id = ANY (p_ids));
    FOR v_job IN
        SELECT j.seq, j.id, j.state, j.gates FROM jobs j WHERE j.seq = ANY (v_seqs)
         ORDER BY j.seq FOR UPDATE
    LOOP
        IF v_job.state = 0 AND v_job.gates IS NOT NULL AND NOT v_locked THEN
            -- It ran a moment ago. Out of order, so somebody may have to try again; hardly ever.
            PERFORM lock_lanes();
            v_locked := true;
        END IF;
        v_answer := CASE v_job.state WHEN 0 THEN 'cancelled' WHEN 1 THEN 'requested'
                                     ELSE 'too_late' END;
        IF v_job.state = 0 THEN
            v_waiting := v_waiting || v_job.seq;
        ELSIF v_job.state = 1 THEN
            UPDATE jobs j SET cancel_requested = true WHERE j.seq = v_job.seq;
        END IF;
        FOR i IN 1 .. cardinality(p_ids) LOOP
            IF p_ids[i] = v_job.id THEN
                v_answers[i] := v_answer;
                IF v_answer = 'cancelled' THEN
                    v_answer := 'too_late';
                END IF;
            END IF;
        END LOOP;
    END LOOP;
    IF v_waiting <> '{}' THEN
        PERFORM end_waiting(v_waiting, 4, NULL, v_now);
    END IF;
    RETURN v_answers;
END $$;

-- `JobStore.settled`: the stored ones among p_ids; errors, result and reason of terminal ones only.
CREATE FUNCTION settled_jobs(p_ids uuid[])
RETURNS TABLE (
    id bytea, state smallint, result bytea, error_kind text, error_message text, reason text
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY
    SELECT uuid_send(j.id), j.state, j.result, j.error_kind, j.error_message, j.reason
      FROM jobs j WHERE j.id = ANY (p_ids);
END $$;

-- `JobStore.claimable`: every part is one look into an index, until a solo job is met.
CREATE FUNCTION is_claimable(p_at timestamptz, p_queues text[]) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_queue text;
    v_solo record;
BEGIN
    FOREACH v_queue IN ARRAY p_queues LOOP
        CONTINUE WHEN EXISTS (SELECT 1 FROM queues q WHERE q.name = v_queue AND q.paused);
        IF EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 1)
           OR (SELECT j.due <= v_now FROM jobs j
                WHERE j.queue BETWEEN v_queue AND v_queue AND j.ready = 0
                ORDER BY j.queue, j.due LIMIT 1)
           OR EXISTS (SELECT 1 FROM bays b WHERE b.queue = v_queue AND b.opens_at = 0)
           OR EXISTS (SELECT 1 FROM bays b WHERE b.queue = v_queue AND b.opens_at > 0
                                             AND b.opens_at <= us_of(v_now)) THEN
            RETURN true;
        END IF;
        CONTINUE WHEN NOT EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 3);
        SELECT s.* INTO v_solo FROM find_solo(v_queue, v_now, true) AS s;
        IF v_solo.job IS NOT NULL OR v_solo.expired <> '{}' OR v_solo.more THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;

-- `JobStore.active`: every part but the last is one look into an index; that one reads what runs,
-- which is no more than the slots of all workers.
CREATE FUNCTION is_active(p_at timestamptz, p_queues text[]) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_queue text;
BEGIN
    FOREACH v_queue IN ARRAY p_queues LOOP
        IF NOT EXISTS (SELECT 1 FROM queues q WHERE q.name = v_queue AND q.paused)
           AND (EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 1)
                OR EXISTS (SELECT 1 FROM bays b WHERE b.queue = v_queue)
                OR EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 3)
                OR (SELECT j.due <= v_now FROM jobs j
                     WHERE j.queue BETWEEN v_queue AND v_queue AND j.ready = 0
                     ORDER BY j.queue, j.due LIMIT 1)) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN EXISTS (SELECT 1 FROM jobs j WHERE j.state = 1 AND j.queue = ANY (p_queues));
END $$;
