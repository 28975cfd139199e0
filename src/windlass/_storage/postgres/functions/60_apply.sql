-- Ending claims.

-- What the outcome of a run means for others: breakers, rates and the queue. The caller has called
-- `lock_limits` if p_gates is not NULL, `lock_cool_downs` if the queue has something to forgive
-- (p_forgive).
CREATE OR REPLACE FUNCTION tell_others(
    p_verb text, p_gates text[], p_queue text, p_now timestamptz, p_drains boolean,
    p_forgive boolean
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_verb = 'succeed' THEN
        IF p_gates IS NOT NULL THEN
            PERFORM close_breakers(p_gates);
        END IF;
        IF p_forgive THEN
            PERFORM forgive_queues(ARRAY[p_queue], p_now);
        END IF;
    ELSIF p_gates IS NULL THEN
        RETURN;
    ELSIF p_verb IN ('retry', 'fail') THEN
        PERFORM trip_breakers(p_gates, us_of(p_now));
    ELSIF p_verb = 'throttle' AND p_drains THEN
        PERFORM drain_gates(p_gates, us_of(p_now));
    END IF;
END $$;

-- One transition that is no plain success; see `apply_transitions` for the arguments. The caller
-- has called `lock_limits` if the job has limits, `lock_cool_downs` with p_cools or if there is something
-- to forgive, and has locked the row where the claim may hold: one that does not hold now never will
-- again, and needs no lock for its answer.
--   verdict, verb   the answer
--   gates           what came back
--   place           whether the job is to be placed (`place_waiting`)
--   retake          whether it may hold its key again (`retake_keys`)
--   cool_until, cooled   of its queue, where it was throttled with p_cools
--   part, ended     the part of a member that ended, and how (`count_members`)
--   queue, task, worker, wait, run   what `add_rollups` counts
CREATE OR REPLACE FUNCTION apply_transition(
    p_now timestamptz, p_seq bigint, p_number integer, p_verb text, p_by text, p_delay bigint,
    p_refund boolean, p_result bytea, p_error_kind text, p_error_message text,
    p_error_traceback text, p_lost integer, p_solo boolean, p_missed boolean,
    p_if_cancelled text, p_keep boolean, p_cools bigint[], p_drains boolean, p_forgive boolean,
    p_error_frame text, p_started boolean, p_metadata text,
    OUT verdict text, OUT verb text, OUT opened text[], OUT place boolean, OUT retake boolean,
    OUT cool_until timestamptz, OUT cooled boolean, OUT part bigint, OUT ended integer,
    OUT queue text, OUT task text, OUT worker text, OUT wait integer, OUT run integer
)
LANGUAGE plpgsql AS $$
DECLARE
    v_job record;
    v_due timestamptz;
    v_state integer;
    v_returns boolean;
    v_missed boolean;
    v_why text;
BEGIN
    SELECT j.state, j.claim_number, j.cancel_requested, j.queue, j.task, j.worker, j.due,
           j.started_at, j.attempt, j.key, j.key_window, j.key_spent, j.gates, j.missed_at,
           j.ended_number, j.ended_verb, j.ended_by, j.part
      INTO v_job FROM jobs j WHERE j.seq = p_seq;
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
    v_missed := verb = 'release' AND p_missed;
    IF v_missed THEN
        -- Nothing ran: this is no error of the job's.
        v_why := coalesce(p_error_message, '');
        p_error_kind := NULL;
    END IF;
    IF verb = 'throttle' AND p_cools IS NOT NULL THEN
        SELECT c.cool_until, c.cooled INTO cool_until, cooled
          FROM cool_queue(v_job.queue, p_cools, p_delay, p_now) AS c;
    END IF;
    IF v_job.gates IS NOT NULL THEN
        DELETE FROM holds h WHERE h.gate = ANY (v_job.gates) AND h.seq = p_seq;
        opened := v_job.gates;
    END IF;
    v_state := CASE verb WHEN 'succeed' THEN 2 WHEN 'fail' THEN 3 WHEN 'cancel' THEN 4 ELSE 0 END;
    v_returns := v_state = 0;
    IF v_job.part IS NOT NULL AND NOT v_returns THEN
        p_keep := true;  -- a flow is deleted as a whole
        part := v_job.part;
        ended := v_state;
    END IF;
    IF NOT v_returns AND v_job.key IS NOT NULL
       AND (NOT p_keep OR v_job.key_window <> 'for_a_time') THEN
        PERFORM free_keys(ARRAY[v_job.key], ARRAY[p_seq]);
    END IF;
    IF NOT v_returns AND NOT p_keep THEN
        DELETE FROM jobs j WHERE j.seq = p_seq;
        PERFORM forget_traces(ARRAY[p_seq]);
    ELSIF verb = 'succeed' THEN
        UPDATE jobs j
           SET state = 2, finished_at = p_now, ended_number = p_number, ended_verb = verb,
               ended_by = p_by, result = p_result, lost = 0, solo = false, missed_at = NULL,
               error_kind = NULL, error_message = NULL, error_traceback = NULL,
               error_frame = NULL, metadata = p_metadata
         WHERE j.seq = p_seq;
    ELSE
        v_due := CASE WHEN v_returns THEN greatest(after(p_now, p_delay), cool_until)
                      ELSE v_job.due END;
        place := v_returns AND v_due <= p_now AND v_job.gates IS NOT NULL AND NOT p_solo;
        retake := v_returns AND NOT p_started AND v_job.key_window = 'until_started'
            AND NOT v_job.key_spent;
        UPDATE jobs j
           SET state = v_state,
               ready = CASE WHEN NOT v_returns THEN NULL
                            WHEN v_due > p_now OR place THEN 0
                            WHEN p_solo THEN 3 ELSE 1 END,
               due = v_due,
               attempt = CASE WHEN v_returns AND p_refund THEN greatest(0, j.attempt - 1)
                              ELSE j.attempt END,
               finished_at = CASE WHEN NOT v_returns THEN p_now END,
               -- A job that was started once does not expire.
               expires_at = CASE WHEN v_returns AND p_started THEN NULL ELSE j.expires_at END,
               key_spent = j.key_spent OR (v_returns AND p_started),
               ended_number = p_number, ended_verb = verb, ended_by = p_by,
               lost = p_lost, solo = p_solo, result = NULL, metadata = p_metadata,
               throttled = j.throttled + (verb = 'throttle')::integer,
               missed_at = CASE WHEN verb = 'release'
                                THEN coalesce(j.missed_at, CASE WHEN p_missed THEN p_now END) END,
               missed_why = coalesce(v_why, j.missed_why),
               error_kind = coalesce(p_error_kind, j.error_kind),
               error_message = CASE WHEN p_error_kind IS NULL THEN j.error_message
                                    ELSE p_error_message END,
               error_traceback = CASE WHEN p_error_kind IS NULL THEN j.error_traceback
                                      ELSE p_error_traceback END,
               error_frame = CASE WHEN p_error_kind IS NULL THEN j.error_frame
                                  ELSE p_error_frame END
         WHERE j.seq = p_seq;
        IF NOT v_missed THEN
            INSERT INTO history (seq, claim_number, attempt, verb, worker, started_at, ended_at,
                                 error_kind, error_message, error_traceback, metadata)
            VALUES (p_seq, p_number, v_job.attempt, verb, v_job.worker, v_job.started_at, p_now,
                    p_error_kind, p_error_message, p_error_traceback, p_metadata);
            -- Snoozes and their like push no error out: 32 with an error, 8 without.
            IF p_number > 8 THEN
                DELETE FROM history h
                 WHERE h.seq = p_seq
                   AND h.claim_number IN (
                           SELECT o.claim_number FROM history o
                            WHERE o.seq = p_seq
                              AND (o.error_kind IS NULL) = (p_error_kind IS NULL)
                            ORDER BY o.claim_number DESC
                           OFFSET CASE WHEN p_error_kind IS NULL THEN 8 ELSE 32 END);
            END IF;
        END IF;
    END IF;
    queue := v_job.queue;
    task := v_job.task;
    worker := v_job.worker;
    wait := width_bucket(span_us(v_job.due, v_job.started_at), bucket_bottoms());
    run := width_bucket(span_us(v_job.started_at, p_now), bucket_bottoms());
    PERFORM tell_others(verb, v_job.gates, v_job.queue, p_now, p_drains, p_forgive);
END $$;

-- Jobs that were not started hold their keys again, unless others do by now. A key that is under
-- decision in an open transaction is left to that one.
CREATE OR REPLACE FUNCTION retake_keys(p_seqs bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET lock_timeout TO '100ms' AS $$
DECLARE
    v_job record;
BEGIN
    FOR v_job IN SELECT j.seq, j.key FROM jobs j WHERE j.seq = ANY (p_seqs) ORDER BY j.seq
    LOOP
        BEGIN
            PERFORM take_key(v_job.key, v_job.seq, NULL, p_now);
        EXCEPTION WHEN lock_not_available THEN
            -- Its transaction may hold the keys of all these jobs: wait for one of them only.
            PERFORM set_config('lock_timeout', '1ms', true);
        END;
    END LOOP;
END $$;

-- The limits that these jobs count against, as far as they run under these claims, side by side. A running
-- job with limits holds something: where no job does, there is nothing to look for.
--
-- A claim that does not hold now will not hold later, and a running job keeps its limits. So a second
-- look in the same transaction, with rows locked by then, finds no limit that is not locked yet.
CREATE OR REPLACE FUNCTION limits_held(p_seqs bigint[], p_numbers integer[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM holds) THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        SELECT DISTINCT split_part(g, ':', 1)
          FROM unnest(p_seqs, p_numbers) AS c (seq, number),
               LATERAL (SELECT j.gates FROM jobs j
                         WHERE j.seq = c.seq AND j.claim_number = c.number AND j.state + 0 = 1
                         LIMIT 1) AS r,
               unnest(r.gates) AS g);
END $$;

-- The same for claims with one number.
CREATE OR REPLACE FUNCTION limits_of_claims(p_seqs bigint[], p_number integer) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM holds) THEN
        RETURN '{}';
    END IF;
    -- Most have one gate: only the others are taken apart.
    RETURN ARRAY(
        WITH held AS MATERIALIZED (
            SELECT j.gates FROM jobs j
             WHERE j.seq = ANY (p_seqs) AND j.claim_number = p_number AND j.state + 0 = 1
               AND j.gates IS NOT NULL
        )
        SELECT split_part(h.gates[1], ':', 1) FROM held h
        UNION
        SELECT split_part(g, ':', 1) FROM held h, unnest(h.gates) AS g
         WHERE cardinality(h.gates) > 1);
END $$;

-- These jobs have succeeded: their units come back, breakers close, and lanes that wait for them may
-- ask again. The caller has called `lock_limits`.
CREATE OR REPLACE FUNCTION give_back(p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_gates text[];
BEGIN
    WITH back AS (
        DELETE FROM holds h
         USING (SELECT j.seq, j.gates FROM jobs j
                 WHERE j.seq = ANY (p_seqs) AND j.gates IS NOT NULL OFFSET 0) AS t
         WHERE h.gate = ANY (t.gates) AND h.seq = t.seq
        RETURNING h.gate
    )
    SELECT array_agg(g.gate) INTO v_gates FROM (SELECT DISTINCT b.gate FROM back b) AS g;
    IF v_gates IS NOT NULL THEN
        PERFORM open_gates(v_gates);
        PERFORM close_breakers(v_gates);
    END IF;
END $$;

-- Whether what these transitions do must be done in the order in which they were given: what one
-- says of a queue or a breaker, the next one finds.
CREATE OR REPLACE FUNCTION order_matters(p_seqs bigint[], p_verbs text[], p_limited boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN p_limited
        AND 'succeed' = ANY (p_verbs) AND ('retry' = ANY (p_verbs) OR 'fail' = ANY (p_verbs))
        AND EXISTS (SELECT 1 FROM limits l
                     WHERE l.failures IS NOT NULL
                       AND l.name IN (SELECT split_part(g, ':', 1) FROM jobs j, unnest(j.gates) AS g
                                       WHERE j.seq = ANY (p_seqs)));
END $$;

-- Jobs that were just stored join the parts of those that added them.
--   p_follow    texts of lists of jobs, as for `insert_listed`; beside it p_parts (NULL: they join none)
--   p_left      the places, in all lists, of those that were not stored: a key is held, or the id is not new
--   p_blocked   they are placed when they are counted (`settle_part`)
-- Returns one part per job that joined.
CREATE OR REPLACE FUNCTION join_parts(
    p_follow text[], p_parts bigint[], p_left integer[], p_blocked boolean
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_joined bigint[] := '{}';
BEGIN
    IF array_remove(p_parts, NULL) <> '{}' THEN
        WITH joined AS (
            UPDATE jobs j
               SET part = a.part, added = true,
                   ready = CASE WHEN p_blocked THEN 4 ELSE j.ready END,
                   -- They count again from the turn of a job that comes back.
                   delay = CASE WHEN a.due IS NULL THEN a.delay END,
                   expires = span_us(j.created_at, j.expires_at),
                   expires_at = CASE WHEN NOT p_blocked THEN j.expires_at END
              FROM (SELECT (l.job ->> 'id')::uuid AS id, f.part, l.job ->> 'due' AS due,
                           (l.job ->> 'delay')::bigint AS delay,
                           row_number() OVER (ORDER BY f.n, l.n) AS place
                      FROM unnest(p_follow, p_parts) WITH ORDINALITY AS f (jobs, part, n),
                           listed_jobs(f.jobs::json) WITH ORDINALITY AS l (job, n)
                    OFFSET 0) AS a
             WHERE j.id = a.id AND a.part IS NOT NULL AND a.place <> ALL (p_left)
               AND j.part IS NULL
            RETURNING j.part
        )
        SELECT coalesce(array_agg(d.part), '{}') INTO v_joined FROM joined d;
    END IF;
    RETURN v_joined;
END $$;

-- Count members that `apply` has ended or added, and settle what follows, up to 100 jobs. The answer:
-- whether jobs of other parts were touched. p_noted: see `apply_transitions`.
CREATE OR REPLACE FUNCTION end_members_now(
    p_now timestamptz, p_parts bigint[], p_was integer[], p_ended integer[], p_noted boolean
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF p_noted THEN
        PERFORM note_members(p_parts, p_was, p_ended);
    ELSE
        PERFORM count_members(p_now, p_parts, p_was, p_ended);
    END IF;
    RETURN has_due_parts(p_now) AND settle_some(100, p_now) > 0;
END $$;

-- The same for members that succeeded and add no flows, one entry per job in p_parts. Most ends are those of
-- jobs of one part, and not of its last ones: then one row is written, and nothing else happens. The answer:
-- the jobs of other parts that were touched, or 0 in their place.
CREATE OR REPLACE FUNCTION end_successes_now(p_now timestamptz, p_parts bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_many integer := cardinality(p_parts);
    v_over boolean;
    v_complete boolean;
    v_seqs bigint[];
BEGIN
    IF p_parts[1] <> ANY (p_parts) THEN
        RETURN CASE WHEN end_members_now(p_now, p_parts, array_fill(0, ARRAY[v_many]),
                                         array_fill(2, ARRAY[v_many]), false)
                    THEN '{0}'::bigint[] ELSE '{}' END;
    END IF;
    -- Failures were told before, and it is needed.
    UPDATE part_counts c SET open = c.open - v_many, succeeded = c.succeeded + v_many
     WHERE c.part = p_parts[1]
    RETURNING c.open = 0, c.succeeded = c.total INTO v_over, v_complete;
    IF v_complete THEN
        v_seqs := open_next(p_parts[1], p_now);
    END IF;
    IF v_seqs <> '{}' THEN
        RETURN v_seqs;  -- the claims that this wakes settle what else is due
    END IF;
    IF v_over AND v_seqs IS NULL THEN
        PERFORM tell_parts(p_parts[1:1], p_now);
    END IF;
    RETURN CASE WHEN has_due_parts(p_now) AND settle_some(100, p_now) > 0
                THEN '{0}'::bigint[] ELSE '{}' END;
END $$;

-- `JobStore.apply`. Arrays side by side, one entry per transition (_core/job/transition.py), best in the
-- order of p_seqs; one that no transition needs may be NULL as a whole. Verbs are names, delays
-- microseconds. p_if_cancelled NULL: a cancel request changes nothing.
--   p_cools    texts of arrays: how long the queue cools down, by its number of cool-downs before
--   p_thens    the jobs that are inserted if this verb takes effect, JSON as for `insert_listed`; or
--              one such job without a list, as workers of earlier versions say it
--   p_metadatas  the facts that handlers noted, JSON
--   p_noted    members are noted, not counted (`note_members`): the caller counts others as well
--   p_flows    the flows that are added if this verb takes effect: texts of lists, as for `add_flows`
--   p_order    the places in the order in which they were given, where it is not that of p_seqs
--
-- Returns one row: the store's now and, side by side, verdicts (applied, repeated, refused,
-- unknown) and verbs; both NULL if every transition was applied as asked. cool_untils and cooleds
-- are NULL without a cool-down. left_out: the ids of jobs of p_thens and p_flows that were not
-- stored.
--
-- Successes that are kept are one statement, which locks their rows in the order of p_seqs. Every other
-- transition is decided alone: then all rows are locked before the first one is changed.
-- p_one_by_one: everything is decided alone, because one job is named twice and each must see what the
-- one before it did.
CREATE OR REPLACE FUNCTION apply_transitions(
    p_at timestamptz, p_durable boolean,
    p_seqs bigint[], p_numbers integer[], p_verbs text[], p_bys text[],
    p_results bytea[] DEFAULT NULL, p_keeps boolean[] DEFAULT NULL,
    p_delays bigint[] DEFAULT NULL, p_refunds boolean[] DEFAULT NULL,
    p_error_kinds text[] DEFAULT NULL, p_error_messages text[] DEFAULT NULL,
    p_error_tracebacks text[] DEFAULT NULL, p_losts integer[] DEFAULT NULL,
    p_solos boolean[] DEFAULT NULL, p_misseds boolean[] DEFAULT NULL,
    p_if_cancelleds text[] DEFAULT NULL, p_one_by_one boolean DEFAULT false,
    p_cools text[] DEFAULT NULL, p_drains boolean[] DEFAULT NULL, p_thens text[] DEFAULT NULL,
    p_order integer[] DEFAULT NULL, p_error_frames text[] DEFAULT NULL,
    p_starteds boolean[] DEFAULT NULL, p_metadatas text[] DEFAULT NULL,
    p_noted boolean DEFAULT false, p_flows text[] DEFAULT NULL,
    OUT at timestamptz, OUT verdicts text[], OUT verbs text[], OUT cool_untils timestamptz[],
    OUT cooleds boolean[], OUT placed boolean, OUT left_out text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer := coalesce(cardinality(p_seqs), 0);
    v_done integer := 0;
    v_group record;
    v_answer record;
    v_opened text[];
    v_place bigint[];
    v_place_at integer;
    v_retake bigint[];
    i integer;
    v_limits text[];
    v_limited boolean;
    v_forgive boolean;
    v_in_order boolean;
    v_alone boolean;
    v_many integer;
    v_queues text[];
    v_tasks text[];
    v_workers text[];
    v_counted integer[];
    v_waits integer[];
    v_runs integer[];
    v_follow text[];
    v_done_seqs bigint[] := '{}';
    v_parts bigint[];
    v_was integer[];
    v_ended integer[];
    v_adding bigint[];
    v_left integer[];
    v_added bigint[];
    v_flows text[];
    v_flow_parts bigint[];
BEGIN
    at := coalesce(p_at, clock_timestamp());
    PERFORM commit_durably(p_durable);
    IF p_thens IS NOT NULL THEN
        PERFORM require_limits(names_in(
            ARRAY(SELECT j.job ->> 'limits'
                    FROM unnest(p_thens) AS t (jobs), listed_jobs(t.jobs::json) AS j (job)
                   WHERE j.job ->> 'limits' IS NOT NULL)));
    END IF;
    IF p_flows IS NOT NULL THEN
        PERFORM require_limits(names_in(
            ARRAY(SELECT j.job ->> 'limits'
                    FROM unnest(p_flows) AS t (flows),
                         json_array_elements(t.flows::json) AS f (request),
                         json_array_elements(f.request -> 'jobs') AS j (job)
                   WHERE j.job ->> 'limits' IS NOT NULL)));
    END IF;
    v_limits := limits_held(p_seqs, p_numbers);
    v_limited := v_limits <> '{}';
    v_forgive := may_forgive(p_seqs, at);
    IF v_forgive OR p_cools IS NOT NULL THEN
        PERFORM lock_cool_downs();
    END IF;
    IF v_limited THEN
        PERFORM lock_limits(v_limits);
    END IF;
    v_in_order := p_cools IS NOT NULL OR order_matters(p_seqs, p_verbs, v_limited);
    v_alone := p_one_by_one OR v_in_order OR p_keeps IS NOT NULL OR p_thens IS NOT NULL
        OR p_flows IS NOT NULL OR 'succeed' <> ANY (p_verbs);
    IF v_alone THEN
        PERFORM 1 FROM jobs j WHERE j.seq = ANY (p_seqs) ORDER BY j.seq FOR UPDATE;
    END IF;
    IF NOT v_in_order AND p_thens IS NULL THEN
        p_order := NULL;
    END IF;
    FOR v_group IN
        WITH done AS (
            UPDATE jobs j
               SET state = 2, finished_at = at, ended_number = j.claim_number,
                   ended_verb = 'succeed', ended_by = t.by, result = t.result, lost = 0,
                   solo = false, missed_at = NULL, error_kind = NULL, error_message = NULL,
                   error_traceback = NULL, error_frame = NULL, metadata = t.metadata
              FROM unnest(p_seqs, p_numbers, p_verbs, p_bys, p_results, p_keeps, p_thens,
                          p_metadatas)
                   WITH ORDINALITY AS t (seq, number, verb, by, result, keep, follow, metadata, n)
             WHERE NOT p_one_by_one AND NOT v_in_order
               AND j.seq = t.seq AND j.claim_number = t.number AND j.state + 0 = 1
               AND t.verb = 'succeed' AND (t.keep IS NOT FALSE OR j.part IS NOT NULL)
               AND t.follow IS NULL AND (p_flows IS NULL OR p_flows[t.n::integer] IS NULL)
            RETURNING t.n::integer AS n, j.seq, j.queue, j.task, j.worker, j.part, j.key,
                      j.key_window <> 'for_a_time' AS frees,
                      width_bucket(span_us(j.due, j.started_at), bucket_bottoms()) AS wait,
                      width_bucket(span_us(j.started_at, at), bucket_bottoms()) AS run
        )
        SELECT d.queue, d.task, d.worker, array_agg(d.n) AS places, array_agg(d.wait) AS wait,
               array_agg(d.run) AS run,
               array_agg(d.part) FILTER (WHERE d.part IS NOT NULL) AS parts,
               array_agg(d.key) FILTER (WHERE d.frees) AS keys,
               array_agg(d.seq) FILTER (WHERE d.frees) AS holders
          FROM done d GROUP BY d.queue, d.task, d.worker ORDER BY 1, 2, 3
    LOOP
        v_many := cardinality(v_group.places);
        IF v_alone THEN
            v_queues := v_queues || array_fill(v_group.queue, ARRAY[v_many]);
            v_tasks := v_tasks || array_fill(v_group.task, ARRAY[v_many]);
            v_workers := v_workers || array_fill(v_group.worker, ARRAY[v_many]);
            v_counted := v_counted || array_fill(1, ARRAY[v_many]);
            v_waits := v_waits || v_group.wait;
            v_runs := v_runs || v_group.run;
        ELSE
            PERFORM add_rollup(at, v_group.queue, v_group.task, v_group.worker,
                               array_fill(1, ARRAY[v_many]), v_group.wait, v_group.run);
        END IF;
        v_done := v_done + v_many;
        IF v_group.keys IS NOT NULL THEN
            PERFORM free_keys(v_group.keys, v_group.holders);
        END IF;
        IF v_group.parts IS NOT NULL THEN
            v_parts := v_parts || v_group.parts;
            v_was := v_was || array_fill(0, ARRAY[cardinality(v_group.parts)]);
            v_ended := v_ended || array_fill(2, ARRAY[cardinality(v_group.parts)]);
        END IF;
        IF v_forgive THEN
            PERFORM forgive_queues(ARRAY[v_group.queue], at);
        END IF;
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
        IF v_queues IS NOT NULL THEN
            PERFORM add_rollups(at, v_queues, v_tasks, v_workers, v_counted, v_waits, v_runs);
        END IF;
        IF v_parts IS NOT NULL AND p_noted THEN
            PERFORM end_members_now(at, v_parts, v_was, v_ended, true);
        ELSIF v_parts IS NOT NULL THEN
            placed := end_successes_now(at, v_parts) <> '{}';
        END IF;
        RETURN;
    END IF;
    verdicts := coalesce(verdicts, array_fill(NULL::text, ARRAY[v_count]));
    verbs := p_verbs;
    IF p_cools IS NOT NULL THEN
        cool_untils := array_fill(NULL::timestamptz, ARRAY[v_count]);
        cooleds := array_fill(false, ARRAY[v_count]);
    END IF;
    FOR turn IN 1 .. v_count LOOP
        i := coalesce(p_order[turn], turn);
        CONTINUE WHEN verdicts[i] IS NOT NULL;
        SELECT a.* INTO v_answer FROM apply_transition(
            at, p_seqs[i], p_numbers[i], p_verbs[i], p_bys[i], coalesce(p_delays[i], 0),
            coalesce(p_refunds[i], false), p_results[i], p_error_kinds[i], p_error_messages[i],
            p_error_tracebacks[i], coalesce(p_losts[i], 0), coalesce(p_solos[i], false),
            coalesce(p_misseds[i], false), p_if_cancelleds[i], coalesce(p_keeps[i], true),
            p_cools[i]::bigint[], coalesce(p_drains[i], false), v_forgive,
            p_error_frames[i], coalesce(p_starteds[i], true), p_metadatas[i]) AS a;
        verdicts[i] := v_answer.verdict;
        verbs[i] := v_answer.verb;
        v_opened := v_opened || v_answer.opened;
        IF v_answer.verdict = 'applied' THEN
            v_queues := v_queues || v_answer.queue;
            v_tasks := v_tasks || v_answer.task;
            v_workers := v_workers || v_answer.worker;
            v_counted := v_counted || array_position(finishing_verbs(), v_answer.verb);
            v_waits := v_waits || v_answer.wait;
            v_runs := v_runs || v_answer.run;
        END IF;
        IF v_answer.cool_until IS NOT NULL THEN
            cool_untils[i] := v_answer.cool_until;
            cooleds[i] := v_answer.cooled;
        END IF;
        IF v_answer.place THEN
            v_place := v_place || p_seqs[i];
        END IF;
        IF v_answer.retake THEN
            v_retake := v_retake || p_seqs[i];
        END IF;
        IF p_thens[i] IS NOT NULL AND v_answer.verdict = 'applied'
           AND v_answer.verb = p_verbs[i] THEN
            IF v_answer.part IS NULL OR v_answer.verb <> 'succeed' THEN
                v_follow := v_follow || p_thens[i];
                v_adding := v_adding || NULL::bigint;
            ELSIF members_cancelled(ARRAY[p_seqs[i]]) = '{}' THEN
                v_follow := v_follow || p_thens[i];
                v_adding := v_adding || v_answer.part;
            ELSE
                left_out := left_out || ARRAY(SELECT j.job ->> 'id'
                                                FROM listed_jobs(p_thens[i]::json) AS j (job));
            END IF;
        END IF;
        IF p_flows[i] IS NOT NULL AND v_answer.verdict = 'applied'
           AND v_answer.verb = p_verbs[i] THEN
            v_flows := v_flows || p_flows[i];
            v_flow_parts := v_flow_parts || v_answer.part;
        END IF;
        IF v_answer.part IS NOT NULL THEN
            v_parts := v_parts || v_answer.part;
            v_was := v_was || 0;
            v_ended := v_ended || v_answer.ended;
        END IF;
    END LOOP;
    IF v_place IS NOT NULL THEN
        PERFORM place_waiting(v_place, at);
    END IF;
    IF v_opened IS NOT NULL THEN
        PERFORM open_gates(v_opened);
    END IF;
    IF v_retake IS NOT NULL THEN
        PERFORM retake_keys(v_retake, at);
    END IF;
    IF v_follow IS NOT NULL THEN
        -- A key may be under decision in an open transaction: then nothing of this happens.
        -- The wait is short: another transaction may want a key that was freed above.
        PERFORM set_config('lock_timeout', '500ms', true);
        v_left := ARRAY(
            SELECT i.place FROM insert_listed(
                at, p_durable, (SELECT json_agg(j.job ORDER BY f.n, j.n)
                                  FROM unnest(v_follow) WITH ORDINALITY AS f (jobs, n),
                                       listed_jobs(f.jobs::json) WITH ORDINALITY AS j (job, n)),
                p_repeats => true) AS i
             WHERE i.replaced IS NOT NULL);
        IF v_left <> '{}' THEN
            left_out := left_out || ARRAY(
                SELECT a.id FROM (
                    SELECT l.job ->> 'id' AS id, row_number() OVER (ORDER BY f.n, l.n) AS place
                      FROM unnest(v_follow) WITH ORDINALITY AS f (jobs, n),
                           listed_jobs(f.jobs::json) WITH ORDINALITY AS l (job, n)) AS a
                 WHERE a.place = ANY (v_left));
        END IF;
        v_added := join_parts(v_follow, v_adding, v_left, false);
        IF v_added <> '{}' THEN
            v_parts := v_parts || v_added;
            v_was := v_was || array_fill(NULL::integer, ARRAY[cardinality(v_added)]);
            v_ended := v_ended || array_fill(0, ARRAY[cardinality(v_added)]);
        END IF;
    END IF;
    IF v_flows IS NOT NULL THEN
        PERFORM set_config('lock_timeout', '500ms', true);
        left_out := left_out || add_flows(v_flows, v_flow_parts);
    END IF;
    IF v_queues IS NOT NULL THEN
        PERFORM add_rollups(at, v_queues, v_tasks, v_workers, v_counted, v_waits, v_runs);
    END IF;
    IF v_parts IS NOT NULL THEN
        placed := end_members_now(at, v_parts, v_was, v_ended, p_noted);
    END IF;
END $$;

-- The answers for successes that are alike, once those in p_done were stored: the claims of the others
-- do not hold.
CREATE OR REPLACE FUNCTION answer_successes(
    p_seqs bigint[], p_done bigint[], p_number integer, p_by text,
    OUT verdicts text[], OUT verbs text[]
)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(CASE WHEN t.seq = ANY (p_done) THEN 'applied'
                          WHEN j.seq IS NULL THEN 'unknown'
                          WHEN j.ended_number = p_number AND j.ended_by = p_by THEN 'repeated'
                          ELSE 'refused' END ORDER BY t.n),
           array_agg(CASE WHEN t.seq = ANY (p_done) THEN 'succeed'
                          WHEN j.ended_number = p_number AND j.ended_by = p_by
                          THEN j.ended_verb END ORDER BY t.n)
      INTO verdicts, verbs
      FROM unnest(p_seqs) WITH ORDINALITY AS t (seq, n) LEFT JOIN jobs j ON j.seq = t.seq;
END $$;

-- `apply_transitions` for the path of most jobs: successes under one claim number, by one worker, with
-- one result, kept, no job named twice. opened: as `end_successes_now` answers.
CREATE OR REPLACE FUNCTION apply_successes(
    p_at timestamptz, p_durable boolean,
    p_seqs bigint[], p_number integer, p_by text, p_result bytea,
    OUT at timestamptz, OUT verdicts text[], OUT verbs text[], OUT placed boolean,
    OUT opened bigint[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_group record;
    v_parts bigint[];
    v_done bigint[] := '{}';
    v_limits text[];
    v_limited boolean;
    v_forgive boolean;
BEGIN
    at := coalesce(p_at, clock_timestamp());
    PERFORM commit_durably(p_durable);
    v_limits := limits_of_claims(p_seqs, p_number);
    v_limited := v_limits <> '{}';
    v_forgive := may_forgive(p_seqs, at);
    IF v_forgive THEN
        PERFORM lock_cool_downs();
    END IF;
    IF v_limited THEN
        PERFORM lock_limits(v_limits);
    END IF;
    FOR v_group IN
        WITH done AS (
            UPDATE jobs j
               SET state = 2, finished_at = at, ended_number = p_number, ended_verb = 'succeed',
                   ended_by = p_by, result = p_result, lost = 0, solo = false, missed_at = NULL,
                   error_kind = NULL, error_message = NULL, error_traceback = NULL,
                   error_frame = NULL, metadata = NULL
             WHERE j.seq = ANY (p_seqs) AND j.claim_number = p_number AND j.state + 0 = 1
            RETURNING j.seq, j.queue, j.task, j.worker, j.part, j.key,
                      width_bucket(span_us(j.due, j.started_at), bucket_bottoms()) AS wait,
                      width_bucket(span_us(j.started_at, at), bucket_bottoms()) AS run
        )
        SELECT d.queue, d.task, d.worker, array_agg(d.seq) AS seqs, array_agg(d.wait) AS wait,
               array_agg(d.run) AS run,
               array_agg(d.part) FILTER (WHERE d.part IS NOT NULL) AS parts,
               count(d.key) AS keyed
          FROM done d GROUP BY d.queue, d.task, d.worker ORDER BY 1, 2, 3
    LOOP
        PERFORM add_rollup(at, v_group.queue, v_group.task, v_group.worker,
                           array_fill(1, ARRAY[cardinality(v_group.seqs)]),
                           v_group.wait, v_group.run);
        v_done := v_done || v_group.seqs;
        v_parts := v_parts || v_group.parts;
        IF v_group.keyed > 0 THEN
            PERFORM free_keys(array_agg(j.key), array_agg(j.seq)) FROM jobs j
              WHERE j.seq = ANY (v_group.seqs) AND j.key_window <> 'for_a_time';
        END IF;
        IF v_forgive THEN
            PERFORM forgive_queues(ARRAY[v_group.queue], at);
        END IF;
    END LOOP;
    IF v_limited THEN
        PERFORM give_back(v_done);
    END IF;
    IF cardinality(v_done) < cardinality(p_seqs) THEN
        SELECT a.verdicts, a.verbs INTO verdicts, verbs
          FROM answer_successes(p_seqs, v_done, p_number, p_by) AS a;
    END IF;
    IF v_parts IS NOT NULL THEN
        opened := end_successes_now(at, v_parts);
        placed := opened <> '{}';
    END IF;
END $$;

-- The same for successes that are not kept: their rows are deleted together, and no index entry is
-- written for their end. Members stay, with their results (p_results, beside p_seqs): a batch with one
-- goes the long way.
CREATE OR REPLACE FUNCTION delete_successes(
    p_at timestamptz, p_durable boolean, p_seqs bigint[], p_number integer, p_by text,
    p_results bytea[] DEFAULT NULL,
    OUT at timestamptz, OUT verdicts text[], OUT verbs text[], OUT placed boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_group record;
    v_many integer := cardinality(p_seqs);
    v_done bigint[] := '{}';
    v_gates text[] := '{}';
    v_limits text[];
    v_limited boolean;
    v_forgive boolean;
BEGIN
    at := coalesce(p_at, clock_timestamp());
    IF EXISTS (SELECT 1 FROM flows)
       AND EXISTS (SELECT 1 FROM jobs j WHERE j.seq = ANY (p_seqs) AND j.part IS NOT NULL) THEN
        SELECT a.verdicts, a.verbs, a.placed INTO verdicts, verbs, placed FROM apply_transitions(
            at, p_durable, p_seqs, array_fill(p_number, ARRAY[v_many]),
            array_fill('succeed'::text, ARRAY[v_many]), array_fill(p_by, ARRAY[v_many]),
            p_results, array_fill(false, ARRAY[v_many])) AS a;
        RETURN;
    END IF;
    PERFORM commit_durably(p_durable);
    v_limits := limits_of_claims(p_seqs, p_number);
    v_limited := v_limits <> '{}';
    v_forgive := may_forgive(p_seqs, at);
    IF v_forgive THEN
        PERFORM lock_cool_downs();
    END IF;
    IF v_limited THEN
        PERFORM lock_limits(v_limits);
    END IF;
    IF v_limited THEN
        PERFORM 1 FROM jobs j WHERE j.seq = ANY (p_seqs) ORDER BY j.seq FOR UPDATE;
        v_gates := ARRAY(SELECT DISTINCT g FROM jobs j, unnest(j.gates) AS g
                          WHERE j.seq = ANY (p_seqs) AND j.claim_number = p_number
                            AND j.state + 0 = 1);
    END IF;
    FOR v_group IN
        WITH done AS (
            DELETE FROM jobs j
             WHERE j.seq = ANY (p_seqs) AND j.claim_number = p_number AND j.state + 0 = 1
            RETURNING j.seq, j.queue, j.task, j.worker, j.key,
                      width_bucket(span_us(j.due, j.started_at), bucket_bottoms()) AS wait,
                      width_bucket(span_us(j.started_at, at), bucket_bottoms()) AS run
        )
        SELECT d.queue, d.task, d.worker, array_agg(d.seq) AS seqs, array_agg(d.wait) AS wait,
               array_agg(d.run) AS run,
               array_agg(d.key) FILTER (WHERE d.key IS NOT NULL) AS keys,
               array_agg(d.seq) FILTER (WHERE d.key IS NOT NULL) AS holders
          FROM done d GROUP BY d.queue, d.task, d.worker ORDER BY 1, 2, 3
    LOOP
        PERFORM add_rollup(at, v_group.queue, v_group.task, v_group.worker,
                           array_fill(1, ARRAY[cardinality(v_group.seqs)]),
                           v_group.wait, v_group.run);
        v_done := v_done || v_group.seqs;
        IF v_group.keys IS NOT NULL THEN
            PERFORM free_keys(v_group.keys, v_group.holders);
        END IF;
        IF v_forgive THEN
            PERFORM forgive_queues(ARRAY[v_group.queue], at);
        END IF;
    END LOOP;
    IF v_limited THEN
        DELETE FROM holds h WHERE h.gate = ANY (v_gates) AND h.seq = ANY (v_done);
        PERFORM open_gates(v_gates);
        PERFORM close_breakers(v_gates);
    END IF;
    PERFORM forget_traces(v_done);
    IF cardinality(v_done) < cardinality(p_seqs) THEN
        SELECT a.verdicts, a.verbs INTO verdicts, verbs
          FROM answer_successes(p_seqs, v_done, p_number, p_by) AS a;
    END IF;
END $$;
