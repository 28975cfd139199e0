-- Jobs stored and finished on a connection of the user's own, in the user's own transaction.
--
-- One JSON text in, one text out: every driver can send and read that. Such a transaction may stay
-- open for long, so nothing here locks what others need: not the limits, no lane, no bay,
-- no row of rollups that a worker writes. And nothing of the user's session is changed: settings
-- hang on the functions and end with them. How durable the commit is, is the user's to say.

-- The time that another open transaction may keep a unique key undecided.
CREATE OR REPLACE FUNCTION insert_for_user(p_request text) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    v_request json := p_request::json;
    v_channel text := v_request ->> 'channel';
    v_held text;
    v_refused integer;
BEGIN
    -- "place" is a job's place in the request, from 1: those that were not stored, who holds their
    -- key, and whether that one took over what was asked for. NULL: all were stored.
    SELECT json_object_agg(i.place, json_build_array(i.holder, i.replaced))::text,
           count(*) FILTER (WHERE NOT i.replaced)
      INTO v_held, v_refused
      FROM insert_listed(
               (v_request ->> 'at')::timestamptz, NULL, v_request -> 'jobs', true) AS i
     WHERE i.replaced IS NOT NULL;
    IF v_channel IS NOT NULL AND v_refused < json_array_length(v_request -> 'jobs') THEN
        PERFORM pg_notify(v_channel, '');
    END IF;
    RETURN v_held;
END $$;

-- A fenced success. WL010: the claim is not held any more; WL011: this very claim has been ended by
-- this very worker before. Both are raised, not answered: a caller that swallows the error still has a
-- transaction that cannot commit.
--
-- `holds` of a limited job are left behind: they count for nothing once the job does not run, so
-- its units are free with the commit. Waiting lanes are opened by `ended_for_user`, or by
-- `sweep_holds` if the worker does not live to do it; these also close breakers, and the first
-- forgets cool-downs of a queue whose job is kept.
CREATE OR REPLACE FUNCTION finish_for_user(p_request text) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
DECLARE
    v_request json := p_request::json;
    v_now timestamptz := coalesce((v_request ->> 'at')::timestamptz, clock_timestamp());
    v_seq bigint := (v_request ->> 'seq')::bigint;
    v_number integer := (v_request ->> 'number')::integer;
    v_by text := v_request ->> 'by';
    v_keep boolean := (v_request ->> 'keep')::boolean;
    v_job record;
    v_left integer[];
    v_left_out text[] := '{}';
    v_added bigint[] := '{}';
BEGIN
    SELECT j.state, j.claim_number, j.queue, j.task, j.worker, j.due, j.started_at, j.key,
           j.key_window, j.ended_number, j.ended_by, j.part
      INTO v_job FROM jobs j WHERE j.seq = v_seq FOR UPDATE;
    IF NOT FOUND OR v_job.state <> 1 OR v_job.claim_number <> v_number THEN
        IF FOUND AND v_job.ended_number = v_number AND v_job.ended_by = v_by THEN
            RAISE EXCEPTION 'job % was finished by this run before', v_request ->> 'id'
                USING ERRCODE = 'WL011';
        END IF;
        RAISE EXCEPTION 'this run has lost its claim on job %', v_request ->> 'id'
            USING ERRCODE = 'WL010';
    END IF;
    v_keep := v_keep OR v_job.part IS NOT NULL;
    IF v_job.key IS NOT NULL AND (NOT v_keep OR v_job.key_window <> 'for_a_time') THEN
        DELETE FROM keys k WHERE k.key = v_job.key AND k.seq = v_seq;
    END IF;
    IF v_keep THEN
        UPDATE jobs j
           SET state = 2, finished_at = v_now, ended_number = v_number, ended_verb = 'succeed',
               ended_by = v_by, result = decode(v_request ->> 'result', 'base64'), lost = 0,
               solo = false, missed_at = NULL, error_kind = NULL, error_message = NULL,
               error_traceback = NULL, error_frame = NULL, metadata = v_request ->> 'metadata'
         WHERE j.seq = v_seq;
    ELSE
        DELETE FROM jobs j WHERE j.seq = v_seq;
        PERFORM forget_traces(ARRAY[v_seq]);
    END IF;
    -- A row of this session alone: the worker continues to count in its own while this one waits
    -- for a commit. Readers merge them.
    PERFORM add_rollup(
        v_now, v_job.queue, v_job.task, v_job.worker || '/' || pg_backend_pid(),
        ARRAY[array_position(finishing_verbs(), 'succeed')],
        ARRAY[width_bucket(span_us(v_job.due, v_job.started_at), bucket_bottoms())],
        ARRAY[width_bucket(span_us(v_job.started_at, v_now), bucket_bottoms())]);
    IF v_request ->> 'then' IS NOT NULL AND v_job.part IS NOT NULL
       AND members_cancelled(ARRAY[v_seq]) <> '{}' THEN
        v_left_out := ARRAY(SELECT j.job ->> 'id' FROM listed_jobs(v_request -> 'then') AS j (job));
    ELSIF v_request ->> 'then' IS NOT NULL THEN
        v_left := ARRAY(
            SELECT i.place FROM insert_listed(
                v_now, NULL, (SELECT json_agg(j.job ORDER BY j.n)
                                FROM listed_jobs(v_request -> 'then') WITH ORDINALITY AS j (job, n)),
                p_repeats => true) AS i
             WHERE i.replaced IS NOT NULL);
        v_left_out := ARRAY(
            SELECT j.job ->> 'id'
              FROM listed_jobs(v_request -> 'then') WITH ORDINALITY AS j (job, n)
             WHERE j.n = ANY (v_left));
        v_added := join_parts(ARRAY[v_request ->> 'then'], ARRAY[v_job.part], v_left, true);
    END IF;
    IF v_request ->> 'flows' IS NOT NULL THEN
        v_left_out := v_left_out || add_flows(ARRAY[v_request ->> 'flows'], ARRAY[v_job.part]);
    END IF;
    IF v_job.part IS NOT NULL THEN
        -- The part is not locked here: `ended_for_user`, or the next claim, counts.
        PERFORM note_members(
            v_added || v_job.part,
            array_fill(NULL::integer, ARRAY[cardinality(v_added)]) || 0,
            array_fill(1, ARRAY[cardinality(v_added)]) || 2);
    END IF;
    RETURN CASE WHEN v_left_out <> '{}' THEN array_to_json(v_left_out)::text END;
END $$;

-- Units of limits that came back unheard, because their jobs were finished, with success, in
-- transactions of the user's. With p_seq, those of one job.
CREATE OR REPLACE FUNCTION sweep_holds(p_seq bigint DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_gates text[];
BEGIN
    -- Nearly always there is nothing, and no lock is needed to see that.
    v_gates := ARRAY(
        SELECT h.gate FROM holds h LEFT JOIN jobs j ON j.seq = h.seq
         WHERE (p_seq IS NULL OR h.seq = p_seq)
           AND (j.state + 0 = 1 AND j.claim_number = h.claim_number) IS NOT TRUE);
    IF v_gates = '{}' THEN
        RETURN 0;
    END IF;
    PERFORM lock_limits(limits_of(v_gates));
    WITH idle AS (
        DELETE FROM holds h USING holds o LEFT JOIN jobs j ON j.seq = o.seq
         WHERE h.gate = o.gate AND h.seq = o.seq AND h.gate = ANY (v_gates)
           AND (p_seq IS NULL OR o.seq = p_seq)
           AND (j.state + 0 = 1 AND j.claim_number = o.claim_number) IS NOT TRUE
        RETURNING h.gate
    )
    SELECT array_agg(DISTINCT i.gate) INTO v_gates FROM idle i;
    IF v_gates IS NOT NULL THEN
        PERFORM open_gates(v_gates);
        PERFORM close_breakers(v_gates);
    END IF;
    RETURN coalesce(cardinality(v_gates), 0);
END $$;

-- What became of a claim that `finish_for_user` was called for: stored (and its units are given
-- back), open (a transaction holds the row), held (nothing happened) or lost. p_kept: a
-- success keeps the row; without that, no row is a success.
CREATE OR REPLACE FUNCTION ended_for_user(
    p_at timestamptz, p_seq bigint, p_number integer, p_by text, p_kept boolean,
    OUT what text, OUT at timestamptz
)
LANGUAGE plpgsql AS $$
DECLARE
    v_job record;
    v_free boolean := false;
BEGIN
    at := coalesce(p_at, clock_timestamp());
    -- Twice: the lock, if it can be had, ends all doubt; but a row that is read as ended needs
    -- none, and the lock on limits comes before those on jobs.
    FOR look IN 1 .. 2 LOOP
        SELECT j.state, j.claim_number, j.ended_number, j.ended_by, j.ended_verb, j.finished_at
          INTO v_job FROM jobs j WHERE j.seq = p_seq;
        IF NOT FOUND THEN
            what := CASE WHEN p_kept THEN 'lost' ELSE 'stored' END;
        ELSIF v_job.state = 1 AND v_job.claim_number = p_number THEN
            what := CASE WHEN v_free THEN 'held' ELSE 'open' END;
        ELSIF v_job.ended_number = p_number AND v_job.ended_by = p_by
              AND v_job.ended_verb = 'succeed' THEN
            what := 'stored';
            at := coalesce(v_job.finished_at, at);
        ELSE
            what := 'lost';
        END IF;
        EXIT WHEN look = 2 OR what <> 'open';
        PERFORM 1 FROM jobs j WHERE j.seq = p_seq FOR UPDATE SKIP LOCKED;
        v_free := FOUND;
        EXIT WHEN NOT v_free;
    END LOOP;
    IF what = 'stored' AND v_free THEN
        what := 'open';  -- just now; the next look finds it so, without holding the row
    ELSIF what = 'stored' THEN
        IF may_forgive(ARRAY[p_seq], at) THEN
            PERFORM lock_cool_downs();
            PERFORM sweep_holds(p_seq);
            PERFORM forgive_queues(ARRAY(SELECT j.queue FROM jobs j WHERE j.seq = p_seq), at);
        ELSE
            PERFORM sweep_holds(p_seq);
        END IF;
        IF has_due_parts(at) THEN
            PERFORM settle_some(100, at);
        END IF;
    END IF;
END $$;
