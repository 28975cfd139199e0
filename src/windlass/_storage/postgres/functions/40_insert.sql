-- Storing jobs, and replacing what waits under the same unique key.

-- A waiting job takes over what was asked for in its stead: its arguments and what goes with them,
-- its due time, or both (p_what: see OnConflict). The caller has locked the row. In any case its
-- expiry, so that what is asked for now is not lost to one that was asked for before.
--
-- No lane is touched, so that this may happen in a transaction that stays open: a limited job whose
-- place changes leaves its lane and is put into the right one by the next claim. The lane it has
-- left finds out when it is visited: what it says of its head is only where to look first.
CREATE OR REPLACE FUNCTION replace_waiting(
    p_seq bigint, p_what text, p_due timestamptz, p_payload bytea, p_limits text,
    p_principal text, p_correlation_id text, p_trace text, p_expires bigint, p_now timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_job record;
    v_arguments boolean := p_what <> 'replace_due';
    v_due timestamptz;
    v_gates text[];
    v_costs float8[];
    v_stays boolean;
BEGIN
    SELECT j.due, j.gates, j.costs INTO v_job FROM jobs j WHERE j.seq = p_seq;
    v_due := CASE WHEN p_what = 'replace_arguments' THEN v_job.due ELSE p_due END;
    IF v_arguments THEN
        SELECT array_agg(u.use ->> 0 ORDER BY u.n), array_agg((u.use ->> 1)::float8 ORDER BY u.n)
          INTO v_gates, v_costs
          FROM json_array_elements(p_limits::json) WITH ORDINALITY AS u (use, n);
    ELSE
        v_gates := v_job.gates;
        v_costs := v_job.costs;
    END IF;
    v_stays := v_due = v_job.due AND v_gates IS NOT DISTINCT FROM v_job.gates
               AND v_costs IS NOT DISTINCT FROM v_job.costs;
    UPDATE jobs j
       SET due = v_due, gates = v_gates, costs = v_costs, expires_at = after(p_now, p_expires),
           ready = CASE WHEN v_stays THEN j.ready WHEN v_due > p_now THEN 0 WHEN j.solo THEN 3
                        WHEN v_gates IS NULL THEN 1 ELSE 0 END,
           lane = CASE WHEN v_stays THEN j.lane END,
           payload = CASE WHEN v_arguments THEN p_payload ELSE j.payload END,
           principal = CASE WHEN v_arguments THEN p_principal ELSE j.principal END,
           correlation_id = CASE WHEN v_arguments THEN p_correlation_id
                                 ELSE j.correlation_id END,
           trace = CASE WHEN v_arguments THEN p_trace ELSE j.trace END
     WHERE j.seq = p_seq;
END $$;

-- Hold a key for a new job, or find out who holds it.
--   p_seqs     the numbers of this batch, which is not stored yet
--   p_lock     a holder that waits is to be replaced, and is locked if it is of p_task. No caller waits
--              here for the row of a job, because others may wait for the keys that are held by now
-- A holder that waits past its expiry and is not to be replaced is discarded, and the key is free;
-- its lane finds out as it does in `replace_waiting`.
-- The answer: number NULL, the key is held now for p_seq; else the holder's.
--   place      its place among p_seqs, if it is one of these
--   waiting    it still waits, and is locked; NULL: another transaction has locked it
--   expired    the holder before, if it was discarded
CREATE OR REPLACE FUNCTION meet_key(
    p_key text, p_seq bigint, p_until timestamptz, p_now timestamptz, p_seqs bigint[],
    p_task text, p_lock boolean,
    OUT number bigint, OUT place integer, OUT id uuid, OUT task text, OUT waiting boolean,
    OUT expired uuid
)
LANGUAGE plpgsql AS $$
DECLARE
    v_late boolean;
    v_part bigint;
BEGIN
    LOOP
        waiting := false;
        number := take_key(p_key, p_seq, p_until, p_now);
        EXIT WHEN number IS NULL;
        place := array_position(p_seqs, number);
        EXIT WHEN place IS NOT NULL;
        SELECT j.id, j.task,
               j.state = 0 AND j.expires_at <= p_now AND j.key_window <> 'for_a_time'
          INTO id, task, v_late FROM jobs j WHERE j.seq = number;
        IF NOT FOUND THEN
            -- Its job is gone: the key is free.
            DELETE FROM keys k WHERE k.key = p_key AND k.seq = number;
            CONTINUE;
        END IF;
        IF v_late AND NOT (p_lock AND task = p_task) THEN
            UPDATE jobs j
               SET state = 5, ready = NULL, lane = NULL, finished_at = p_now, reason = 'expired'
             WHERE j.seq = ANY (ARRAY(
                       SELECT l.seq FROM jobs l
                        WHERE l.seq = number AND l.state + 0 = 0 AND l.expires_at <= p_now
                          FOR UPDATE SKIP LOCKED))
            RETURNING j.part INTO v_part;
            IF FOUND THEN
                expired := id;
                IF v_part IS NOT NULL THEN
                    PERFORM note_members(ARRAY[v_part], '{0}', '{4}');
                END IF;
                DELETE FROM keys k WHERE k.key = p_key AND k.seq = number;
            ELSIF EXISTS (SELECT 1 FROM jobs j WHERE j.seq = number AND j.state + 0 = 0
                                                 AND j.expires_at <= p_now) THEN
                waiting := NULL;
                EXIT;
            END IF;
            CONTINUE;
        END IF;
        EXIT WHEN NOT p_lock OR task <> p_task;
        -- One that waits for other parts of its flow is not replaced, like one that runs.
        PERFORM 1 FROM jobs j WHERE j.seq = number AND j.ready + 0 < 4 FOR UPDATE SKIP LOCKED;
        waiting := FOUND;
        EXIT WHEN waiting;
        IF EXISTS (SELECT 1 FROM jobs j WHERE j.seq = number AND j.ready + 0 < 4) THEN
            waiting := NULL;
            EXIT;
        END IF;
        -- One that was started in this moment may have let go of its key: then what is asked for
        -- must not be lost, and the key is free.
        EXIT WHEN EXISTS (
            SELECT 1 FROM keys k WHERE k.key = p_key AND k.seq = number
                                   AND (k.until IS NULL OR k.until > p_now));
    END LOOP;
END $$;

-- WL424, its hex digits as the detail, for an id that is stored with another task or payload. Under
-- the same key the payload may have been replaced since.
CREATE OR REPLACE FUNCTION refuse_other_calls(
    p_ids uuid[], p_tasks text[], p_payloads bytea[], p_keys text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_id uuid;
BEGIN
    SELECT j.id INTO v_id
      FROM unnest(p_ids, p_tasks, p_payloads, p_keys) AS t (id, task, payload, key)
      JOIN jobs j ON j.id = t.id
     WHERE j.task <> t.task
        OR (j.payload <> t.payload AND (t.key IS NULL OR j.key IS DISTINCT FROM t.key))
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the id names another call'
            USING ERRCODE = 'WL424', DETAIL = encode(uuid_send(v_id), 'hex');
    END IF;
END $$;

-- The places of the ids that were stored before this statement, or that are named again: what it has
-- stored bears the mark of its transaction.
CREATE OR REPLACE FUNCTION stored_before(p_ids uuid[])
RETURNS TABLE (place integer, holder text, replaced boolean)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT t.n::integer, NULL::text, false
      FROM (SELECT u.n, u.id, row_number() OVER (PARTITION BY u.id ORDER BY u.n) AS turn
              FROM unnest(p_ids) WITH ORDINALITY AS u (id, n) OFFSET 0) AS t
     WHERE t.turn > 1
        OR NOT EXISTS (SELECT 1 FROM jobs j
                        WHERE j.id = t.id AND j.xmin = pg_current_xact_id()::xid)
     ORDER BY t.n;
END $$;

-- `insert_plain_jobs` for jobs that are due now and differ in nothing but their arguments, as those of
-- one call of enqueue_many mostly do. They are stored in the order of the arrays.
CREATE OR REPLACE FUNCTION insert_alike_jobs(
    p_at timestamptz, p_durable boolean, p_ids uuid[], p_payloads bytea[],
    p_queue text, p_task text, p_priority integer, p_max_attempts integer
) RETURNS TABLE (place integer, holder text, replaced boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_stored bigint;
BEGIN
    PERFORM commit_durably(p_durable);
    INSERT INTO jobs (id, ready, priority, due, created_at, max_attempts, budget, queue, task,
                      payload)
    SELECT t.id, 1, p_priority, v_now, v_now, p_max_attempts, p_max_attempts, p_queue, p_task,
           t.payload
      FROM unnest(p_ids, p_payloads) AS t (id, payload)
    ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS v_stored = ROW_COUNT;
    IF v_stored < cardinality(p_ids) THEN
        PERFORM refuse_other_calls(
            p_ids, array_fill(p_task, ARRAY[cardinality(p_ids)]), p_payloads, NULL);
        RETURN QUERY SELECT b.place, b.holder, b.replaced FROM stored_before(p_ids) AS b;
    END IF;
END $$;

-- `insert_jobs` for jobs that carry nothing special, which most do: every column and every parameter
-- costs. p_strict, p_repeats and the answer are the same.
CREATE OR REPLACE FUNCTION insert_plain_jobs(
    p_at timestamptz, p_durable boolean,
    p_ids uuid[], p_queues text[], p_tasks text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], p_max_attempts integer[], p_payloads bytea[],
    p_strict boolean, p_repeats boolean
) RETURNS TABLE (place integer, holder text, replaced boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_stored bigint;
BEGIN
    PERFORM commit_durably(p_durable);
    INSERT INTO jobs (id, ready, priority, due, created_at, max_attempts, budget, queue, task,
                      payload)
    SELECT t.id, CASE WHEN t.due <= v_now THEN 1 ELSE 0 END, t.priority, t.due, v_now,
           t.max_attempts, t.max_attempts, t.queue, t.task, t.payload
      FROM (SELECT u.*, coalesce(u.asked, after(v_now, u.delay), v_now) AS due
              FROM unnest(p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays,
                          p_max_attempts, p_payloads) WITH ORDINALITY
                AS u (id, queue, task, priority, asked, delay, max_attempts, payload, n)
            OFFSET 0) AS t
     ORDER BY t.n
    ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS v_stored = ROW_COUNT;
    IF v_stored < cardinality(p_ids) THEN
        IF p_strict THEN
            PERFORM refuse_other_calls(p_ids, p_tasks, p_payloads, NULL);
        END IF;
        IF p_repeats THEN
            RETURN QUERY SELECT b.place, b.holder, b.replaced FROM stored_before(p_ids) AS b;
        END IF;
    END IF;
END $$;

-- `insert_plain_jobs` for one job that is due now. False: its id is stored, and nothing was done; the
-- caller asks `insert_plain_jobs` by which call. Scalars, and `commit_durably` written out: arrays and
-- a function called from here take a third of the whole.
CREATE OR REPLACE FUNCTION insert_plain_job(
    p_at timestamptz, p_durable boolean, p_id uuid, p_queue text, p_task text, p_priority integer,
    p_max_attempts integer, p_payload bytea
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
BEGIN
    IF p_durable THEN
        IF current_setting('synchronous_commit') IN ('off', 'local') THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
    ELSE
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    INSERT INTO jobs (id, ready, priority, due, created_at, max_attempts, budget, queue, task,
                      payload)
    VALUES (p_id, 1, p_priority, v_now, v_now, p_max_attempts, p_max_attempts, p_queue, p_task,
            p_payload)
    ON CONFLICT (id) DO NOTHING;
    RETURN FOUND;
END $$;

-- `JobStore.insert`. Arrays side by side, one entry per job, in the order of insertion; an array
-- that no job needs may be NULL as a whole. Durations are microseconds.
--   p_durable   see `commit_durably`; NULL in the user's transaction
--   p_dues      the instant asked for, or NULL: p_delays after now (NULL: now)
--   p_expires   from now
--   p_limits    JSON: [["gate", cost], ...]
--   p_conflicts what to do where the key is held (OnConflict); NULL: its holder is the answer
--   p_on_failures  JSON of FollowUp
--   p_strict    refuse an id that is stored with another call, see `refuse_other_calls`
--   p_on_losts  'fail', or NULL: retry
--   p_repeats   also tell which ids were stored before
--   p_parts     the jobs are members of these parts (0: the job is left out), without p_place; beside it
--               p_blocked. Delay and expiry of blocked ones count from when they are placed
--   p_place     false in the user's transaction, which may stay open for long, and for callers that
--               may have to wait for a key: jobs with limits are left to the next claim to put into
--               their lanes, so that no lock is held
-- Returns nothing for a job that was stored, or was before under the same id; for one whose unique
-- key is held, its place in the arrays, the id of the holder (32 hex digits), and whether that one
-- took over what was asked for. NULL as the last: this one held the key, waited past its expiry and
-- was discarded; it says nothing of whether the job was stored. NULL as the holder, with p_repeats:
-- the id was stored before, or comes earlier in the batch.
-- An undefined limit: WL001, its name as the detail, and nothing is stored.
-- A key whose holder must not be met: WL423, the holder and the key as the detail.
-- Waiting for a key under decision in an open transaction: 55P03 after lock_timeout.
CREATE OR REPLACE FUNCTION insert_jobs(
    p_at timestamptz, p_durable boolean, p_place boolean,
    p_ids uuid[], p_queues text[], p_tasks text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], p_max_attempts integer[], p_payloads bytea[],
    p_timeouts bigint[] DEFAULT NULL, p_expires bigint[] DEFAULT NULL,
    p_keys text[] DEFAULT NULL, p_windows text[] DEFAULT NULL, p_periods bigint[] DEFAULT NULL,
    p_limits text[] DEFAULT NULL, p_backoffs text[] DEFAULT NULL, p_tags text[] DEFAULT NULL,
    p_tenants text[] DEFAULT NULL, p_principals text[] DEFAULT NULL,
    p_correlation_ids text[] DEFAULT NULL, p_traces text[] DEFAULT NULL,
    p_parents text[] DEFAULT NULL, p_conflicts text[] DEFAULT NULL,
    p_on_failures text[] DEFAULT NULL, p_strict boolean DEFAULT false,
    p_on_losts text[] DEFAULT NULL, p_repeats boolean DEFAULT false,
    p_parts bigint[] DEFAULT NULL, p_blocked boolean[] DEFAULT NULL
) RETURNS TABLE (place integer, holder text, replaced boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_seqs bigint[];
    v_left integer[] := '{}';
    v_coalesced integer[] := '{}';
    v_names text[];
    v_gates text[];
    v_costs text[];
    v_lanes bigint[];
    v_unsettled bigint[];
    v_stored bigint;
    v_key record;
    v_met record;
BEGIN
    PERFORM commit_durably(p_durable);
    IF p_limits IS NOT NULL THEN
        SELECT r.gates, r.costs INTO v_gates, v_costs FROM read_limits(p_limits) AS r;
        v_names := limits_in(v_gates);
        PERFORM require_limits(v_names);
        IF p_place THEN
            PERFORM lock_limits(v_names);
        END IF;
    END IF;
    IF p_keys IS NOT NULL THEN
        -- Numbers first, in the order of the batch; keys then, in the order of the keys: two
        -- batches that want the same keys never wait for each other.
        SELECT array_agg(nextval(pg_get_serial_sequence('jobs', 'seq')) ORDER BY n) INTO v_seqs
          FROM generate_series(1, cardinality(p_ids)) AS n;
        IF p_conflicts IS NOT NULL THEN
            -- Jobs before keys, and in the order in which everybody locks them.
            PERFORM 1 FROM jobs j
              WHERE j.seq = ANY (ARRAY(
                        SELECT k.seq FROM unnest(p_keys, p_conflicts) AS t (key, what)
                          JOIN keys k ON k.key = t.key WHERE t.what LIKE 'replace%'))
                AND j.state + 0 = 0
              ORDER BY j.seq FOR UPDATE;
        END IF;
        FOR v_key IN
            SELECT t.n::integer AS n, t.id, t.key, t.period, t.task, t.what,
                   coalesce(t.what LIKE 'replace%', false) AS replaces,
                   coalesce(t.asked, after(v_now, t.delay), v_now) AS due
              FROM unnest(p_ids, p_keys, p_periods, p_tasks, p_conflicts, p_dues, p_delays)
                   WITH ORDINALITY AS t (id, key, period, task, what, asked, delay, n)
             WHERE t.key IS NOT NULL ORDER BY t.key COLLATE "C", t.n
        LOOP
            -- An id that is stored is a repeated call, and the job may hold its key itself.
            CONTINUE WHEN p_parts[v_key.n] = 0;
            IF EXISTS (SELECT 1 FROM jobs j WHERE j.id = v_key.id) THEN
                v_left := v_left || v_key.n;
                CONTINUE;
            END IF;
            SELECT m.* INTO v_met FROM meet_key(
                v_key.key, v_seqs[v_key.n], after(v_now, v_key.period), v_now, v_seqs,
                v_key.task, v_key.replaces) AS m;
            IF v_met.expired IS NOT NULL THEN
                place := v_key.n;
                holder := encode(uuid_send(v_met.expired), 'hex');
                replaced := NULL;
                RETURN NEXT;
            END IF;
            CONTINUE WHEN v_met.number IS NULL;
            v_left := v_left || v_key.n;
            IF v_met.place IS NOT NULL THEN
                v_met.id := p_ids[v_met.place];
                v_met.task := p_tasks[v_met.place];
            END IF;
            -- The same call again: in this batch, or stored since the look above.
            CONTINUE WHEN v_met.id = v_key.id;
            place := v_key.n;
            holder := encode(uuid_send(v_met.id), 'hex');
            replaced := v_key.replaces AND (v_met.waiting OR v_met.place IS NOT NULL);
            IF v_key.what = 'raise' OR (v_key.replaces AND v_met.task <> v_key.task) THEN
                RAISE EXCEPTION 'the key is held'
                    USING ERRCODE = 'WL423', DETAIL = concat(holder, ' ', v_key.key);
            ELSIF v_met.waiting IS NULL THEN
                -- It came, or was locked, since those to be replaced were locked above. The same
                -- again finds it in its place, unless an open transaction keeps it.
                RAISE EXCEPTION 'the holder of the key % is locked by somebody else', v_key.key
                    USING ERRCODE = CASE WHEN p_durable IS NULL THEN 'lock_not_available'
                                         ELSE 'serialization_failure' END;
            ELSIF v_met.waiting THEN
                PERFORM replace_waiting(
                    v_met.number, v_key.what, v_key.due, p_payloads[v_key.n], p_limits[v_key.n],
                    p_principals[v_key.n], p_correlation_ids[v_key.n], p_traces[v_key.n],
                    p_expires[v_key.n], v_now);
            ELSIF replaced THEN
                -- One of this batch, which is stored below: an unused array stays NULL.
                IF v_key.what <> 'replace_due' THEN
                    p_payloads[v_met.place] := p_payloads[v_key.n];
                    IF p_limits IS NOT NULL THEN
                        p_limits[v_met.place] := p_limits[v_key.n];
                    END IF;
                    IF p_principals IS NOT NULL THEN
                        p_principals[v_met.place] := p_principals[v_key.n];
                    END IF;
                    IF p_correlation_ids IS NOT NULL THEN
                        p_correlation_ids[v_met.place] := p_correlation_ids[v_key.n];
                    END IF;
                    IF p_traces IS NOT NULL THEN
                        p_traces[v_met.place] := p_traces[v_key.n];
                    END IF;
                END IF;
                IF p_expires IS NOT NULL THEN
                    p_expires[v_met.place] := p_expires[v_key.n];
                END IF;
                IF v_key.what <> 'replace_arguments' THEN
                    IF p_dues IS NOT NULL THEN
                        p_dues[v_met.place] := p_dues[v_key.n];
                    END IF;
                    IF p_delays IS NOT NULL THEN
                        p_delays[v_met.place] := p_delays[v_key.n];
                    END IF;
                END IF;
            END IF;
            v_coalesced := v_coalesced || v_key.n;
            RETURN NEXT;
        END LOOP;
        IF v_coalesced <> '{}' THEN
            PERFORM count_coalesced(
                v_now, (SELECT array_agg(p_queues[n]) FROM unnest(v_coalesced) AS n),
                (SELECT array_agg(p_tasks[n]) FROM unnest(v_coalesced) AS n));
        END IF;
    END IF;
    IF v_seqs IS NULL AND p_limits IS NULL AND p_timeouts IS NULL AND p_expires IS NULL
       AND p_backoffs IS NULL AND p_tags IS NULL AND p_tenants IS NULL AND p_principals IS NULL
       AND p_correlation_ids IS NULL AND p_traces IS NULL AND p_parents IS NULL
       AND p_on_failures IS NULL AND p_on_losts IS NULL AND p_parts IS NULL THEN
        RETURN QUERY
        SELECT i.place, i.holder, i.replaced FROM insert_plain_jobs(
            v_now, NULL, p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays, p_max_attempts,
            p_payloads, p_strict, p_repeats) AS i;
        RETURN;
    END IF;
    IF v_seqs IS NULL THEN
        SELECT array_agg(nextval(pg_get_serial_sequence('jobs', 'seq')) ORDER BY n) INTO v_seqs
          FROM generate_series(1, cardinality(p_ids)) AS n;
    END IF;
    IF p_limits IS NOT NULL THEN
        IF v_coalesced <> '{}' THEN
            -- One of this batch may have taken over the limits of another.
            SELECT r.gates, r.costs INTO v_gates, v_costs FROM read_limits(p_limits) AS r;
        END IF;
        IF p_place THEN
            SELECT f.lanes, f.unsettled INTO v_lanes, v_unsettled
              FROM lanes_for(v_now, p_queues, v_gates, p_priorities, p_dues, p_delays) AS f;
        END IF;
    END IF;
    WITH stored AS (
        INSERT INTO jobs (seq, id, ready, lane, priority, due, created_at, expires_at, timeout,
                          max_attempts, budget, queue, task, gates, costs, key, key_window,
                          key_period, backoff, tags, tenant, principal, correlation_id, trace,
                          parent, on_failure, on_lost, payload, part, delay, expires)
        OVERRIDING SYSTEM VALUE
        SELECT t.seq, t.id,
               CASE WHEN t.blocked THEN 4 WHEN t.lane IS NOT NULL THEN 2
                    WHEN t.due <= v_now AND t.gates IS NULL THEN 1 ELSE 0 END,
               t.lane, t.priority, t.due, v_now,
               CASE WHEN t.blocked IS NOT TRUE THEN after(v_now, t.expires) END, t.timeout,
               t.max_attempts, t.max_attempts, t.queue, t.task, t.gates::text[], t.costs::float8[],
               t.key, t.key_window, t.period, t.backoff, t.tags, t.tenant, t.principal,
               t.correlation_id, t.trace, t.parent, t.on_failure, t.on_lost, t.payload, t.part,
               CASE WHEN t.blocked AND t.asked IS NULL THEN t.delay END,
               CASE WHEN t.blocked THEN t.expires END
          FROM (SELECT u.*, coalesce(u.asked, after(v_now, u.delay), v_now) AS due
                  FROM unnest(v_seqs, p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays,
                              p_max_attempts, p_payloads, p_timeouts, p_expires, p_keys,
                              p_windows, p_periods, v_gates, v_costs, v_lanes,
                              p_backoffs, p_tags, p_tenants,
                              p_principals, p_correlation_ids, p_traces, p_parents,
                              p_on_failures, p_on_losts, p_parts, p_blocked)
                       WITH ORDINALITY
                    AS u (seq, id, queue, task, priority, asked, delay, max_attempts, payload,
                          timeout, expires, key, key_window, period, gates, costs, lane, backoff,
                          tags, tenant, principal, correlation_id, trace, parent, on_failure, on_lost,
                          part, blocked, n)
                OFFSET 0) AS t
         WHERE t.n <> ALL (v_left) AND t.part IS DISTINCT FROM 0
         ORDER BY t.n
        ON CONFLICT (id) DO NOTHING
        RETURNING 1
    )
    SELECT count(*) INTO v_stored FROM stored s;
    IF p_strict AND v_stored < cardinality(p_ids) THEN
        PERFORM refuse_other_calls(p_ids, p_tasks, p_payloads, p_keys);
    END IF;
    IF p_repeats AND v_stored < cardinality(p_ids) THEN
        -- Those that met a holder were told of above.
        RETURN QUERY
        SELECT t.n::integer, NULL::text, false
          FROM unnest(p_ids, v_seqs) WITH ORDINALITY AS t (id, seq, n)
         WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.seq = t.seq)
           AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = t.id)
         ORDER BY t.n;
    END IF;
    IF v_unsettled IS NOT NULL THEN
        PERFORM settle_lanes(v_unsettled);
    END IF;
END $$;

-- The same for jobs with unique keys: waits no longer than p_patience for a transaction that decides one. Those
-- with limits are left to the next claim to put into their lanes: a waiting caller must not hold the
-- lock that all limited jobs need. p_tells: also tell which jobs were discarded (a row whose last
-- column is NULL); an older Windlass, which does not say it, would take them for holders.
CREATE OR REPLACE FUNCTION insert_keyed_jobs(
    p_patience text, p_at timestamptz, p_durable boolean,
    p_ids uuid[], p_queues text[], p_tasks text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], p_max_attempts integer[], p_payloads bytea[],
    p_timeouts bigint[], p_expires bigint[], p_keys text[], p_windows text[], p_periods bigint[],
    p_limits text[], p_backoffs text[], p_tags text[], p_tenants text[], p_principals text[],
    p_correlation_ids text[], p_traces text[], p_parents text[],
    p_conflicts text[] DEFAULT NULL, p_on_failures text[] DEFAULT NULL,
    p_on_losts text[] DEFAULT NULL, p_tells boolean DEFAULT false,
    p_repeats boolean DEFAULT false
) RETURNS TABLE (place integer, holder text, replaced boolean)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', p_patience, true);
    RETURN QUERY
    SELECT i.place, i.holder, i.replaced FROM insert_jobs(
        p_at, p_durable, false, p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays,
        p_max_attempts, p_payloads, p_timeouts, p_expires, p_keys, p_windows, p_periods, p_limits,
        p_backoffs, p_tags, p_tenants, p_principals, p_correlation_ids, p_traces, p_parents,
        p_conflicts, p_on_failures, true, p_on_losts, p_repeats) AS i
     WHERE p_tells OR i.replaced IS NOT NULL;
END $$;

-- The jobs of a list in JSON; one without a list is a list of one.
CREATE OR REPLACE FUNCTION listed_jobs(p_jobs json) RETURNS SETOF json
LANGUAGE sql IMMUTABLE AS $$
    SELECT json_array_elements(
        CASE json_typeof(p_jobs) WHEN 'array' THEN p_jobs ELSE json_build_array(p_jobs) END);
$$;

-- The same for jobs as a list in JSON (the struct `Listed` in jobs/job_json.py), with payloads in base64.
-- Those with limits are left to the next claim to put into their lanes.
CREATE OR REPLACE FUNCTION insert_listed(
    p_at timestamptz, p_durable boolean, p_jobs json, p_strict boolean DEFAULT false,
    p_repeats boolean DEFAULT false, p_parts bigint[] DEFAULT NULL,
    p_blocked boolean[] DEFAULT NULL
) RETURNS TABLE (place integer, holder text, replaced boolean)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT i.place, i.holder, i.replaced
      FROM (
        SELECT array_agg(j.id ORDER BY j.n) AS ids,
               array_agg(j.queue ORDER BY j.n) AS queues,
               array_agg(j.task ORDER BY j.n) AS tasks,
               array_agg(j.priority ORDER BY j.n) AS priorities,
               array_agg(j.due ORDER BY j.n) AS dues,
               array_agg(j.delay ORDER BY j.n) AS delays,
               array_agg(j.max_attempts ORDER BY j.n) AS max_attempts,
               array_agg(decode(j.payload, 'base64') ORDER BY j.n) AS payloads,
               -- A column that no job of the batch has is NULL as a whole, and costs nothing.
               CASE WHEN count(j.timeout) > 0 THEN array_agg(j.timeout ORDER BY j.n) END AS timeouts,
               CASE WHEN count(j.expires) > 0 THEN array_agg(j.expires ORDER BY j.n) END AS expires,
               CASE WHEN count(j.key) > 0 THEN array_agg(j.key ORDER BY j.n) END AS keys,
               CASE WHEN count(j.key) > 0 THEN array_agg(j.key_window ORDER BY j.n) END AS windows,
               CASE WHEN count(j.key) > 0 THEN array_agg(j.key_period ORDER BY j.n) END AS periods,
               CASE WHEN count(j.limits) > 0 THEN array_agg(j.limits ORDER BY j.n) END AS limits,
               CASE WHEN count(j.backoff) > 0 THEN array_agg(j.backoff ORDER BY j.n) END AS backoffs,
               CASE WHEN count(j.tags) > 0 THEN array_agg(j.tags ORDER BY j.n) END AS tags,
               CASE WHEN count(j.tenant) > 0 THEN array_agg(j.tenant ORDER BY j.n) END AS tenants,
               CASE WHEN count(j.principal) > 0
                    THEN array_agg(j.principal ORDER BY j.n) END AS principals,
               CASE WHEN count(j.correlation_id) > 0
                    THEN array_agg(j.correlation_id ORDER BY j.n) END AS correlation_ids,
               CASE WHEN count(j.trace) > 0 THEN array_agg(j.trace ORDER BY j.n) END AS traces,
               CASE WHEN count(j.parent) > 0 THEN array_agg(j.parent ORDER BY j.n) END AS parents,
               CASE WHEN count(j.on_conflict) > 0
                    THEN array_agg(j.on_conflict ORDER BY j.n) END AS conflicts,
               CASE WHEN count(j.on_failure) > 0
                    THEN array_agg(j.on_failure ORDER BY j.n) END AS on_failures,
               CASE WHEN count(j.on_lost) > 0
                    THEN array_agg(j.on_lost ORDER BY j.n) END AS on_losts
          FROM ROWS FROM (
                 json_to_recordset(p_jobs) AS (
                     id uuid, task text, queue text, payload text, priority integer,
                     max_attempts integer, due timestamptz, delay bigint, timeout bigint,
                     expires bigint, key text, key_window text, key_period bigint, limits text,
                     backoff text, tags text, tenant text, principal text, correlation_id text,
                     trace text, parent text, on_conflict text, on_failure text, on_lost text)
               ) WITH ORDINALITY
            AS j (id, task, queue, payload, priority, max_attempts, due, delay, timeout, expires,
                  key, key_window, key_period, limits, backoff, tags, tenant, principal,
                  correlation_id, trace, parent, on_conflict, on_failure, on_lost, n)
      ) AS b,
      LATERAL insert_jobs(
          p_at, p_durable, false, b.ids, b.queues, b.tasks, b.priorities,
          b.dues, b.delays, b.max_attempts, b.payloads, b.timeouts, b.expires, b.keys, b.windows,
          b.periods, b.limits, b.backoffs, b.tags, b.tenants, b.principals, b.correlation_ids,
          b.traces, b.parents, b.conflicts, b.on_failures, p_strict, b.on_losts,
          p_repeats, p_parts, p_blocked
      ) AS i
     WHERE b.ids IS NOT NULL;
END $$;
