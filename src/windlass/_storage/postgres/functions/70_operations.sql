-- Who works here, what people order, and the chores. Codes that are raised are read in admin.py.
-- What a person orders is on disk when it is answered.
--
-- The planner's settings hang on the functions: a plan that was made while the table was small, and
-- reads all of it, must not outlive that.

-- The worker's lease is renewed if its row is live. At least one row comes back, without a job if
-- the worker holds none.
CREATE OR REPLACE FUNCTION beat(
    p_at timestamptz, p_worker text, p_memory bigint DEFAULT NULL, p_gauges jsonb DEFAULT NULL
)
RETURNS TABLE (live boolean, at timestamptz, id uuid, claim_number integer, seq bigint,
               cancel_requested boolean, duty text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_at timestamptz := coalesce(p_at, clock_timestamp());
    v_live boolean;
    v_duty text;
BEGIN
    -- A beat that a crash of the server takes away does not matter, and one that waited for a
    -- standby that is not there would get the worker declared dead.
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE workers w SET beat_at = v_at, memory = coalesce(p_memory, w.memory)
     WHERE w.id = p_worker AND w.state = 'live'
    RETURNING w.duty INTO v_duty;
    v_live := FOUND;
    IF v_live AND p_gauges IS NOT NULL THEN
        PERFORM keep_gauges(v_at, p_gauges);
    END IF;
    RETURN QUERY
    SELECT v_live, v_at, j.id, j.claim_number, j.seq, j.cancel_requested, v_duty
      FROM (SELECT 1) one
      LEFT JOIN (SELECT * FROM jobs WHERE worker = p_worker AND state = 1) j ON true
     ORDER BY j.seq;
END $$;

-- The duty of live workers from now on. A worker with the duty to stop may be stopping. The
-- answer: those whose duty it is now.
CREATE OR REPLACE FUNCTION assign_duty(
    p_at timestamptz, p_workers text[], p_duty text, p_audit text
) RETURNS SETOF text
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
DECLARE
    v_changed integer;
BEGIN
    PERFORM commit_durably(true);
    UPDATE workers SET duty = p_duty
     WHERE seq = ANY (ARRAY(
               SELECT w.seq FROM workers w
                WHERE w.id = ANY (p_workers) AND w.state = 'live'
                  AND w.duty NOT IN (p_duty, 'stop')
                ORDER BY w.seq FOR UPDATE));
    GET DIAGNOSTICS v_changed = ROW_COUNT;
    IF v_changed > 0 THEN
        PERFORM keep_audit(p_audit, coalesce(p_at, clock_timestamp()), v_changed);
    END IF;
    RETURN QUERY
    SELECT w.id FROM workers w
     WHERE w.id = ANY (p_workers) AND w.state = 'live' AND w.duty = p_duty;
END $$;

-- A worker holds no more claims than it has slots: reading them all is cheap.
CREATE OR REPLACE FUNCTION cancel_requests(p_worker text)
RETURNS TABLE (id uuid, claim_number integer, seq bigint)
LANGUAGE sql STABLE AS $$
    SELECT j.id, j.claim_number, j.seq FROM jobs j
     WHERE j.worker = p_worker AND j.state = 1 AND j.cancel_requested ORDER BY j.seq
$$;

-- No more rows are running than there are slots in all workers, and there is an index of them.
-- One that is locked is being finished by its handler, in a transaction of the user's that may stay
-- open for long: a caller that ended it would wait for that, and all callers behind it.
CREATE OR REPLACE FUNCTION orphans(p_limit integer) RETURNS SETOF jobs
LANGUAGE sql AS $$
    SELECT * FROM jobs j
     WHERE j.state = 1
       AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = j.worker AND w.state = 'live')
     ORDER BY j.worker, j.started_at, j.seq LIMIT p_limit
       FOR SHARE OF j SKIP LOCKED
$$;

-- When the next job that is not ready falls due, of some queues or (NULL) of all.
CREATE OR REPLACE FUNCTION next_due(p_queues text[]) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_queues IS NULL THEN
        RETURN (SELECT due FROM jobs WHERE ready = 0 ORDER BY due LIMIT 1);
    END IF;
    RETURN (SELECT min(next.due)
              FROM unnest(p_queues) AS asked (queue)
             CROSS JOIN LATERAL (SELECT j.due FROM jobs j
                                  WHERE j.ready = 0 AND j.queue = asked.queue
                                  ORDER BY j.due LIMIT 1) AS next);
END $$;

-- Live rows become dead, by compare-and-set; p_overdue: only those whose lease has run out.
CREATE OR REPLACE FUNCTION bury(p_at timestamptz, p_workers text[], p_overdue boolean)
RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz := coalesce(p_at, clock_timestamp());
BEGIN
    RETURN QUERY
    UPDATE workers SET state = 'dead', ended_at = v_at
     WHERE seq = ANY (ARRAY(
               SELECT w.seq FROM workers w
                WHERE w.id = ANY (p_workers) AND w.state = 'live'
                  AND (NOT p_overdue OR v_at - w.beat_at > w.lease * interval '1 microsecond')
                ORDER BY w.seq FOR UPDATE))
    RETURNING id;
END $$;

-- Leave: the transitions of `apply_transitions`, then a release of all claims that the worker still
-- holds, then the end of its row, all or nothing. The answer is that of `apply_transitions`.
--
-- A job that stays locked is being finished in a transaction of the user's that is still open. It
-- is passed by (unknown): the others must not wait for it, and the next sweep finds it.
CREATE OR REPLACE FUNCTION leave_worker(
    p_at timestamptz, p_durable boolean, p_worker text,
    p_seqs bigint[], p_numbers integer[], p_verbs text[], p_bys text[], p_results bytea[],
    p_keeps boolean[], p_delays bigint[], p_refunds boolean[], p_error_kinds text[],
    p_error_messages text[], p_error_tracebacks text[], p_losts integer[], p_solos boolean[],
    p_misseds boolean[], p_if_cancelleds text[], p_cools text[] DEFAULT NULL,
    p_drains boolean[] DEFAULT NULL, p_thens text[] DEFAULT NULL, p_order integer[] DEFAULT NULL,
    p_error_frames text[] DEFAULT NULL, p_starteds boolean[] DEFAULT NULL,
    p_metadatas text[] DEFAULT NULL,
    OUT at timestamptz, OUT verdicts text[], OUT verbs text[], OUT cool_untils timestamptz[],
    OUT cooleds boolean[], OUT left_out text[]
)
LANGUAGE plpgsql SET lock_timeout TO '10s' AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_mine bigint[];
    v_held text[];
    v_free bigint[];
    v_rest record;
BEGIN
    -- The locks on cool-downs and limits come before those on jobs, also those of the second half.
    v_mine := ARRAY(SELECT seq FROM jobs WHERE seq = ANY (p_seqs)
                    UNION SELECT seq FROM jobs WHERE worker = p_worker AND state = 1);
    IF p_cools IS NOT NULL OR may_forgive(v_mine, v_now) THEN
        PERFORM lock_cool_downs();
    END IF;
    v_held := limits_of_jobs(v_mine);
    IF v_held <> '{}' THEN
        PERFORM lock_limits(v_held);
    END IF;
    FOR look IN 1 .. 5 LOOP
        v_free := ARRAY(SELECT seq FROM jobs WHERE seq = ANY (v_mine)
                         ORDER BY seq FOR UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(v_free) = cardinality(v_mine);
        PERFORM pg_sleep(0.1);  -- most locks last no longer
    END LOOP;
    SELECT a.at, a.verdicts, a.verbs, a.cool_untils, a.cooleds, a.left_out
      INTO at, verdicts, verbs, cool_untils, cooleds, left_out FROM apply_transitions(
        v_now, p_durable,
        ARRAY(SELECT CASE WHEN t.seq = ANY (v_mine) AND t.seq <> ALL (v_free) THEN -1
                          ELSE t.seq END
                FROM unnest(p_seqs) WITH ORDINALITY AS t (seq, n) ORDER BY t.n),
        p_numbers, p_verbs, p_bys, p_results, p_keeps, p_delays,
        p_refunds, p_error_kinds, p_error_messages, p_error_tracebacks, p_losts, p_solos,
        p_misseds, p_if_cancelleds, false, p_cools, p_drains, p_thens, p_order,
        p_error_frames, p_starteds, p_metadatas) AS a;
    SELECT array_agg(j.seq) AS seqs, array_agg(j.claim_number) AS numbers,
           array_agg(j.lost) AS losts, array_agg(j.solo) AS solos, count(*)::integer AS count
      INTO v_rest
      FROM (SELECT * FROM jobs
             WHERE worker = p_worker AND state = 1 AND seq = ANY (v_free) ORDER BY seq) AS j;
    IF v_rest.count > 0 THEN
        PERFORM apply_transitions(
            v_now, p_durable, v_rest.seqs, v_rest.numbers,
            array_fill('release'::text, ARRAY[v_rest.count]),
            array_fill(p_worker, ARRAY[v_rest.count]),
            p_refunds => array_fill(true, ARRAY[v_rest.count]),
            p_losts => v_rest.losts, p_solos => v_rest.solos,
            p_if_cancelleds => array_fill('cancel'::text, ARRAY[v_rest.count]),
            p_starteds => array_fill(false, ARRAY[v_rest.count]), p_noted => true);
    END IF;
    UPDATE workers SET state = 'gone', ended_at = v_now WHERE id = p_worker AND state = 'live';
END $$;

-- One ended job waits again, ready now, with a fresh budget; the caller has locked it. A limited one
-- is put where due ones wait: the next claim puts it into its lane, and so no caller waits for the
-- limits here. A member of a part that waits for others, which may be open again or have failed, is
-- blocked, and settling decides; so is one of a sealed flow. The caller counts members.
-- The answer: NULL; else the number of the job that holds its key, and nothing changed.
CREATE OR REPLACE FUNCTION requeue_one(p_seq bigint, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_job record;
    v_holder bigint;
BEGIN
    SELECT j.key, j.key_window, j.key_period,
           EXISTS (SELECT 1 FROM parts p JOIN flows f ON f.number = p.flow
                    WHERE p.id = j.part AND (p.after <> '{}' OR f.sealed)) AS blocked
      INTO v_job FROM jobs j WHERE j.seq = p_seq;
    -- A window until the start stays released, whether the job ever started or not.
    IF v_job.key IS NOT NULL AND v_job.key_window <> 'until_started' THEN
        v_holder := take_key(v_job.key, p_seq, after(p_now, v_job.key_period), p_now);
        IF v_holder IS NOT NULL THEN
            RETURN v_holder;
        END IF;
    END IF;
    UPDATE jobs j
       SET state = 0, lane = NULL,
           ready = CASE WHEN v_job.blocked THEN 4 WHEN j.gates IS NULL THEN 1 ELSE 0 END,
           due = CASE WHEN v_job.blocked THEN j.due ELSE p_now END,
           max_attempts = j.attempt + j.budget, expires_at = NULL, finished_at = NULL,
           missed_at = NULL, reason = NULL, cancel_requested = false,
           lost = 0, solo = false, key_spent = true
     WHERE j.seq = p_seq;
    RETURN NULL;
END $$;

-- Waiting jobs that are due later are due now; the caller has locked them. Limited ones: see
-- `requeue_one`.
CREATE OR REPLACE FUNCTION hasten(p_seqs bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE jobs j
       SET due = p_now, ready = CASE WHEN j.solo THEN 3 WHEN j.gates IS NULL THEN 1 ELSE 0 END
     WHERE j.seq = ANY (p_seqs) AND j.ready + 0 = 0 AND j.due > p_now;
END $$;

CREATE OR REPLACE FUNCTION pause(
    p_queue text, p_paused boolean, p_at timestamptz DEFAULT NULL, p_audit text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
BEGIN
    PERFORM commit_durably(true);
    IF p_paused THEN
        INSERT INTO queues (name, paused) VALUES (p_queue, true)
        ON CONFLICT (name) DO UPDATE SET paused = true;
    ELSE
        UPDATE queues SET paused = false WHERE name = p_queue;
    END IF;
    PERFORM keep_audit(p_audit, coalesce(p_at, clock_timestamp()), 1);
END $$;

-- Jobs that reached a terminal state longer ago, with their keys and their history. Those of the
-- queues p_apart, p_keeps beside it, are kept for another time than p_older.
--
-- Queue by queue, so that the many that one keeps do not stand before the few that another is to
-- lose: a look into the index for each queue that has any, until there are p_limit.
CREATE OR REPLACE FUNCTION prune(
    p_at timestamptz, p_state smallint, p_older bigint, p_limit integer,
    p_apart text[] DEFAULT NULL, p_keeps bigint[] DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz := coalesce(p_at, clock_timestamp());
    v_queue text := '';
    v_older bigint;
    v_old bigint[] := '{}';
    v_seqs bigint[];
    v_keys text[];
    v_holders bigint[];
BEGIN
    WHILE cardinality(v_old) < p_limit LOOP
        SELECT j.queue INTO v_queue FROM jobs j
         WHERE j.state >= 2 AND j.state = p_state AND j.queue > v_queue
         ORDER BY j.queue LIMIT 1;
        EXIT WHEN NOT FOUND;
        v_older := coalesce(p_keeps[array_position(p_apart, v_queue)], p_older);
        v_old := v_old || ARRAY(
            SELECT j.seq FROM jobs j
             WHERE j.state >= 2 AND j.state = p_state AND j.queue = v_queue
               AND j.finished_at < v_at - v_older * interval '1 microsecond'
               AND j.part IS NULL  -- flows go as a whole
             ORDER BY j.finished_at LIMIT p_limit - cardinality(v_old) FOR UPDATE SKIP LOCKED);
    END LOOP;
    IF v_old = '{}' THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        DELETE FROM jobs WHERE seq = ANY (v_old) RETURNING seq, key
    )
    SELECT array_agg(seq), array_agg(key) FILTER (WHERE key IS NOT NULL),
           array_agg(seq) FILTER (WHERE key IS NOT NULL)
      INTO v_seqs, v_keys, v_holders FROM gone;
    IF v_keys IS NOT NULL THEN
        PERFORM free_keys(v_keys, v_holders);
    END IF;
    PERFORM forget_traces(v_seqs);
    RETURN coalesce(cardinality(v_seqs), 0);
END $$;

CREATE OR REPLACE FUNCTION prune_rollups(p_at timestamptz, p_older bigint, p_limit integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    DELETE FROM rollups WHERE ctid = ANY (ARRAY(
        SELECT r.ctid FROM rollups r
         WHERE r.minute < coalesce(p_at, clock_timestamp()) - p_older * interval '1 microsecond'
         ORDER BY r.minute LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;

CREATE OR REPLACE FUNCTION prune_workers(p_at timestamptz, p_older bigint, p_limit integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    DELETE FROM workers WHERE seq = ANY (ARRAY(
        SELECT w.seq FROM workers w
         WHERE w.ended_at < coalesce(p_at, clock_timestamp()) - p_older * interval '1 microsecond'
           AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.worker = w.id AND j.state = 1)
         ORDER BY w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;
