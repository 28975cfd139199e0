-- Calls of JobStore beside insert, claim and apply: report, cancel, and what callers read.

-- `JobStore.report`: fenced, and nothing else happens.
CREATE OR REPLACE FUNCTION report_progress(
    p_seqs bigint[], p_numbers integer[], p_fractions float8[], p_notes text[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    i integer;
BEGIN
    -- What it is worth is gone in a moment: it waits for no disk.
    PERFORM commit_durably(false);
    FOR i IN SELECT t.n FROM unnest(p_seqs) WITH ORDINALITY AS t (seq, n) ORDER BY t.seq, t.n LOOP
        UPDATE jobs j SET progress = p_fractions[i], progress_note = p_notes[i]
         WHERE j.seq = p_seqs[i] AND j.claim_number = p_numbers[i] AND j.state + 0 = 1;
    END LOOP;
END $$;

-- `JobStore.cancel`: one answer per id, in order: cancelled, requested, too_late or unknown.
CREATE OR REPLACE FUNCTION cancel_jobs(p_at timestamptz, p_durable boolean, p_ids uuid[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_seqs bigint[];
    v_job record;
    v_waiting bigint[] := '{}';
    v_answer text;
    v_answers text[] := array_fill('unknown'::text, ARRAY[cardinality(p_ids)]);
    v_held text[];
BEGIN
    PERFORM commit_durably(p_durable);
    -- One of these may be finished in a user's transaction, which stays open.
    PERFORM set_config('lock_timeout', '5s', true);
    v_held := limits_of_waiting(p_ids);
    IF v_held <> '{}' THEN
        PERFORM lock_limits(v_held);
        -- Others that need these limits wait behind this one now.
        PERFORM set_config('lock_timeout', '500ms', true);
    END IF;
    v_seqs := ARRAY(SELECT j.seq FROM jobs j WHERE j.id = ANY (p_ids));
    FOR v_job IN
        SELECT j.seq, j.id, j.state, j.gates FROM jobs j WHERE j.seq = ANY (v_seqs)
         ORDER BY j.seq FOR UPDATE
    LOOP
        IF v_job.state = 0 AND NOT limits_of(v_job.gates) <@ v_held THEN
            -- It ran a moment ago, or has other limits now. Their locks come before those on jobs: from
            -- the start.
            RAISE EXCEPTION 'a job waits again' USING ERRCODE = 'serialization_failure';
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
CREATE OR REPLACE FUNCTION settled_jobs(p_ids uuid[])
RETURNS TABLE (
    id bytea, state smallint, result bytea, error_kind text, error_message text, reason text
)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT uuid_send(j.id), j.state, j.result, j.error_kind, j.error_message, j.reason
      FROM jobs j WHERE j.id = ANY (p_ids);
END $$;

-- Whether a claim is worth it: every part is one look into an index, until a solo job is met.
CREATE OR REPLACE FUNCTION is_claimable(p_at timestamptz, p_queues text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_queue text;
    v_solo record;
BEGIN
    FOREACH v_queue IN ARRAY p_queues LOOP
        IF EXISTS (
            SELECT 1 FROM queues q
             WHERE q.name = v_queue
               AND (q.paused OR q.cool_until > v_now OR room_in(q.name, q.max_running) <= 0)) THEN
            IF EXISTS (SELECT 1 FROM queues q
                        WHERE q.name = v_queue AND NOT q.paused AND q.cool_until > v_now)
               AND is_set_back(us_of(v_now)) THEN
                RETURN true;
            END IF;
            CONTINUE;
        END IF;
        IF EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 1)
           OR (SELECT j.due <= v_now FROM jobs j
                WHERE j.queue BETWEEN v_queue AND v_queue AND j.ready = 0
                ORDER BY j.queue, j.due LIMIT 1)
           OR EXISTS (SELECT 1 FROM lanes l WHERE l.queue = v_queue AND l.bay IS NULL)
           OR EXISTS (SELECT 1 FROM bays b WHERE b.queue = v_queue AND b.opens_at = 0)
           OR EXISTS (SELECT 1 FROM bays b WHERE b.queue = v_queue AND b.opens_at > 0
                                             AND b.opens_at <= us_of(v_now))
           OR (EXISTS (SELECT 1 FROM bays b WHERE b.queue = v_queue AND b.opens_at > 0)
               AND is_set_back(us_of(v_now)))
           -- Also in a closed lane: behind it may stand one that needs less.
           OR EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 2
                                             AND j.expires_at IS NOT NULL
                                             AND j.expires_at <= v_now) THEN
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

-- `JobStore.outlook`: as `is_claimable`, or a claim would settle; if not, the next instant in microseconds.
CREATE OR REPLACE FUNCTION outlook(
    p_at timestamptz, p_queues text[], OUT at timestamptz, OUT claimable boolean,
    OUT next_us bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    v_queue text;
    v_held queues;
BEGIN
    at := coalesce(p_at, clock_timestamp());
    claimable := is_claimable(at, p_queues) OR has_due_parts(at);
    IF claimable THEN
        RETURN;
    END IF;
    FOREACH v_queue IN ARRAY p_queues LOOP
        SELECT * INTO v_held FROM queues q WHERE q.name = v_queue;
        CONTINUE WHEN v_held.paused;
        IF v_held.cool_until > at THEN
            next_us := least(next_us, us_of(v_held.cool_until));
            CONTINUE;
        END IF;
        next_us := least(next_us, (
            SELECT us_of(j.due) FROM jobs j
             WHERE j.queue BETWEEN v_queue AND v_queue AND j.ready = 0 AND j.due > outlook.at
             ORDER BY j.queue, j.due LIMIT 1));
        next_us := least(next_us, (
            SELECT b.opens_at FROM bays b
             WHERE b.queue = v_queue AND b.opens_at > 0 AND b.opens_at > us_of(outlook.at)
             ORDER BY b.opens_at LIMIT 1));
    END LOOP;
END $$;

-- `JobStore.active`: every part but the last is one look into an index; that one reads what runs,
-- which is no more than the slots of all workers.
CREATE OR REPLACE FUNCTION is_active(p_at timestamptz, p_queues text[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_queue text;
BEGIN
    FOREACH v_queue IN ARRAY p_queues LOOP
        IF NOT EXISTS (SELECT 1 FROM queues q WHERE q.name = v_queue AND q.paused)
           AND (EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 1)
                OR EXISTS (SELECT 1 FROM lane_digests l WHERE l.queue = v_queue)
                OR EXISTS (SELECT 1 FROM jobs j WHERE j.queue = v_queue AND j.ready = 3)
                OR (SELECT j.due <= v_now FROM jobs j
                     WHERE j.queue BETWEEN v_queue AND v_queue AND j.ready = 0
                     ORDER BY j.queue, j.due LIMIT 1)) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN EXISTS (SELECT 1 FROM jobs j WHERE j.state = 1 AND j.queue = ANY (p_queues));
END $$;
