-- Storing jobs, and what happens to them while they wait: they fall due, or end unclaimed.

-- --- unique keys --------------------------------------------------------------------------------

-- Hold a key for a job, until an instant or (NULL) until it is freed. The answer: NULL, it is
-- held by this job now; else the seq of the job that holds it. Waits for whoever is deciding the
-- same key in an open transaction, as long as lock_timeout allows.
--
-- The unique index decides, never a look before. A hold whose time is up, or whose job is gone, is
-- none and is taken over.
CREATE FUNCTION take_key(p_key text, p_seq bigint, p_until timestamptz, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_held keys;
BEGIN
    LOOP
        INSERT INTO keys (key, seq, until) VALUES (p_key, p_seq, p_until)
        ON CONFLICT (key) DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        SELECT * INTO v_held FROM keys WHERE key = p_key;
        IF FOUND THEN
            IF v_held.seq = p_seq AND (v_held.until IS NULL OR v_held.until > p_now) THEN
                RETURN NULL;
            ELSIF v_held.until > p_now OR v_held.until IS NULL THEN
                RETURN v_held.seq;
            END IF;
            UPDATE keys SET seq = p_seq, until = p_until
             WHERE key = p_key AND seq = v_held.seq AND until <= p_now;
            IF FOUND THEN
                RETURN NULL;
            END IF;
        END IF;
        -- Freed or taken between two statements: ask again.
    END LOOP;
END $$;

-- Give up keys, each named with the job that may hold it: after a window has passed the key may
-- be somebody else's. In the order of the keys, so that two of these never wait for each other.
-- A locked one is being taken over, perhaps in a transaction of the user's that stays open: its time
-- was up, and nobody has to wait to give up what is none.
CREATE FUNCTION free_keys(p_keys text[], p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_free record;
BEGIN
    FOR v_free IN SELECT t.key, t.seq FROM unnest(p_keys, p_seqs) AS t (key, seq) ORDER BY t.key
    LOOP
        DELETE FROM keys WHERE ctid = ANY (ARRAY(
            SELECT k.ctid FROM keys k WHERE k.key = v_free.key AND k.seq = v_free.seq
               FOR UPDATE SKIP LOCKED));
    END LOOP;
END $$;

-- --- ready --------------------------------------------------------------------------------------

-- Waiting jobs that are marked "later" and are due take their place: the common line, their lane,
-- or the solo line. Those that are not due stay. Callers that may name a job with limits have
-- called `lock_lanes` before they locked the rows.
CREATE FUNCTION place_waiting(p_seqs bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_group record;
    v_lane bigint;
    v_lanes bigint[];
BEGIN
    UPDATE jobs SET ready = CASE WHEN solo THEN 3 ELSE 1 END
     WHERE seq = ANY (p_seqs) AND ready + 0 = 0 AND due <= p_now AND (gates IS NULL OR solo);
    FOR v_group IN
        SELECT j.queue, j.gates, array_agg(j.seq) AS seqs FROM jobs j
         WHERE j.seq = ANY (p_seqs) AND j.ready + 0 = 0 AND j.due <= p_now
         GROUP BY j.queue, j.gates
    LOOP
        v_lane := find_lane(v_group.queue, v_group.gates);
        UPDATE jobs SET ready = 2, lane = v_lane WHERE seq = ANY (v_group.seqs);
        IF v_lane = ANY (v_lanes) IS NOT TRUE THEN
            v_lanes := v_lanes || v_lane;
        END IF;
    END LOOP;
    FOR i IN 1 .. coalesce(cardinality(v_lanes), 0) LOOP
        PERFORM settle_lane(v_lanes[i]);
    END LOOP;
END $$;

-- Make up to p_limit due jobs ready, longest due first; of one queue, or (NULL) of any. Returns
-- how many. Rows that somebody else holds are left to him. With p_locked the caller has called
-- `lock_lanes`; without it, jobs for lanes are left to somebody who has.
CREATE FUNCTION promote_some(p_queue text, p_limit integer, p_now timestamptz, p_locked boolean)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_seqs bigint[];
BEGIN
    IF p_queue IS NULL THEN
        v_seqs := ARRAY(
            SELECT seq FROM jobs
             WHERE ready = 0 AND due <= p_now AND (p_locked OR solo OR gates IS NULL)
             ORDER BY due, seq LIMIT p_limit FOR UPDATE SKIP LOCKED
        );
    ELSE
        v_seqs := ARRAY(
            SELECT seq FROM jobs
             WHERE queue BETWEEN p_queue AND p_queue AND ready = 0 AND due <= p_now
               AND (p_locked OR solo OR gates IS NULL)
             ORDER BY queue, due, seq LIMIT p_limit FOR UPDATE SKIP LOCKED
        );
    END IF;
    IF cardinality(v_seqs) > 0 THEN
        PERFORM place_waiting(v_seqs, p_now);
    END IF;
    RETURN cardinality(v_seqs);
END $$;

-- `MaintenanceStore.promote`: how many jobs of all queues were made ready.
CREATE FUNCTION promote_due(p_at timestamptz, p_durable boolean, p_limit integer)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_limited boolean;
BEGIN
    SELECT bool_or(d.gates IS NOT NULL AND NOT d.solo) INTO v_limited
      FROM (SELECT gates, solo FROM jobs WHERE ready = 0 AND due <= v_now
             ORDER BY due, seq LIMIT p_limit) AS d;
    IF v_limited IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM commit_durably(p_durable);
    IF v_limited THEN
        PERFORM lock_lanes();
    END IF;
    RETURN promote_some(NULL, p_limit, v_now, v_limited);
END $$;

-- --- ending without a claim ---------------------------------------------------------------------

-- Waiting jobs end here, cancelled (4) or discarded (5): they leave their lanes and let go of their
-- keys. Those that are not waiting any more stay as they are. Returns the ids of the others, as
-- hex digits. Callers that may name a job in a lane have called `lock_lanes` before they locked the
-- rows.
CREATE FUNCTION end_waiting(
    p_seqs bigint[], p_state integer, p_reason text, p_now timestamptz
) RETURNS text[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_seqs bigint[];
    v_ids text[];
    v_lanes bigint[];
    v_keys text[];
    v_holders bigint[];
BEGIN
    SELECT array_agg(w.seq), array_agg(encode(uuid_send(w.id), 'hex')),
           array_agg(DISTINCT w.lane) FILTER (WHERE w.lane IS NOT NULL),
           array_agg(w.key) FILTER (WHERE w.key_window <> 'for_a_time'),
           array_agg(w.seq) FILTER (WHERE w.key_window <> 'for_a_time')
      INTO v_seqs, v_ids, v_lanes, v_keys, v_holders
      FROM (SELECT seq, id, lane, key, key_window FROM jobs
             WHERE seq = ANY (p_seqs) AND state + 0 = 0
             ORDER BY seq FOR UPDATE) AS w;
    UPDATE jobs SET state = p_state, ready = NULL, lane = NULL, finished_at = p_now,
                    reason = p_reason
     WHERE seq = ANY (v_seqs);
    IF v_keys IS NOT NULL THEN
        PERFORM free_keys(v_keys, v_holders);
    END IF;
    FOR i IN 1 .. coalesce(cardinality(v_lanes), 0) LOOP
        PERFORM settle_lane(v_lanes[i]);
    END LOOP;
    RETURN coalesce(v_ids, '{}');
END $$;

-- `MaintenanceStore.expire`: how many waiting jobs past their expiry were discarded.
CREATE FUNCTION expire_waiting(p_at timestamptz, p_durable boolean, p_limit integer)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_limited boolean;
    v_seqs bigint[];
BEGIN
    SELECT bool_or(e.gates IS NOT NULL) INTO v_limited
      FROM (SELECT gates FROM jobs
             WHERE ready IS NOT NULL AND expires_at IS NOT NULL AND expires_at <= v_now
             ORDER BY expires_at LIMIT p_limit) AS e;
    IF v_limited IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM commit_durably(p_durable);
    IF v_limited THEN
        PERFORM lock_lanes();
    END IF;
    v_seqs := ARRAY(
        SELECT seq FROM jobs
         WHERE ready IS NOT NULL AND expires_at IS NOT NULL AND expires_at <= v_now
           AND (v_limited OR gates IS NULL)
         ORDER BY expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    );
    RETURN cardinality(end_waiting(v_seqs, 5, 'expired', v_now));
END $$;

-- --- storing ------------------------------------------------------------------------------------

-- `JobStore.insert`. Arrays side by side, one entry per job, in the order of insertion; an array
-- that no job needs may be NULL as a whole. Durations are microseconds.
--   p_durable   see `commit_durably`; NULL in somebody else's transaction
--   p_dues      the instant asked for, or NULL: p_delays after now (NULL: now)
--   p_expires   from now
--   p_limits    JSON: [["gate", cost], ...]
--   p_place     false in somebody else's transaction, which may stay open for long, and for whoever
--               may have to wait for a key: jobs with limits are left to the next claim to put into
--               their lanes, so that no lock is held
-- Returns nothing for a job that was stored, or was before under the same id; for one whose unique
-- key is held, its place in the arrays and the id of the holder (32 hex digits).
-- A limit that nobody defined: WL001, its name as the detail, and nothing is stored.
-- Waiting for a key that somebody is deciding in an open transaction: 55P03 after lock_timeout.
CREATE FUNCTION insert_jobs(
    p_at timestamptz, p_durable boolean, p_place boolean,
    p_ids uuid[], p_queues text[], p_tasks text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], p_max_attempts integer[], p_payloads bytea[],
    p_timeouts bigint[] DEFAULT NULL, p_expires bigint[] DEFAULT NULL,
    p_keys text[] DEFAULT NULL, p_windows text[] DEFAULT NULL, p_periods bigint[] DEFAULT NULL,
    p_limits text[] DEFAULT NULL, p_backoffs text[] DEFAULT NULL, p_tags text[] DEFAULT NULL,
    p_tenants text[] DEFAULT NULL, p_principals text[] DEFAULT NULL,
    p_correlation_ids text[] DEFAULT NULL, p_traces text[] DEFAULT NULL,
    p_parents text[] DEFAULT NULL
) RETURNS TABLE (place integer, holder text)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_unknown text;
    v_seqs bigint[];
    v_left integer[] := '{}';
    v_limited bigint[];
    v_key record;
    v_seq bigint;
    v_holder text;
BEGIN
    PERFORM commit_durably(p_durable);
    IF p_limits IS NOT NULL THEN
        SELECT min(split_part(u.use ->> 0, ':', 1)) INTO v_unknown
          FROM unnest(p_limits) AS t (limits), json_array_elements(t.limits::json) AS u (use)
         WHERE NOT EXISTS (SELECT 1 FROM limits l
                            WHERE l.name = split_part(u.use ->> 0, ':', 1));
        IF v_unknown IS NOT NULL THEN
            RAISE EXCEPTION 'a job names the limit %, which nobody defined', v_unknown
                USING ERRCODE = 'WL001', DETAIL = v_unknown;
        END IF;
        IF p_place THEN
            PERFORM lock_lanes();
        END IF;
    END IF;
    IF p_keys IS NOT NULL THEN
        -- Numbers first, in the order of the batch; keys then, in the order of the keys: two
        -- batches that want the same keys never wait for each other.
        SELECT array_agg(nextval(pg_get_serial_sequence('jobs', 'seq')) ORDER BY n) INTO v_seqs
          FROM generate_series(1, cardinality(p_ids)) AS n;
        FOR v_key IN
            SELECT t.n::integer AS n, t.id, t.key, t.period
              FROM unnest(p_ids, p_keys, p_periods) WITH ORDINALITY AS t (id, key, period, n)
             WHERE t.key IS NOT NULL ORDER BY t.key, t.n
        LOOP
            -- An id that is stored is a repeated call, and the job may hold its key itself.
            IF EXISTS (SELECT 1 FROM jobs j WHERE j.id = v_key.id) THEN
                v_left := v_left || v_key.n;
                CONTINUE;
            END IF;
            LOOP
                v_seq := take_key(v_key.key, v_seqs[v_key.n],
                                  after(v_now, v_key.period), v_now);
                EXIT WHEN v_seq IS NULL;
                SELECT encode(uuid_send(j.id), 'hex') INTO v_holder FROM jobs j
                 WHERE j.seq = v_seq;
                EXIT WHEN FOUND;
                IF v_seq = ANY (v_seqs) THEN
                    v_holder := encode(uuid_send(p_ids[array_position(v_seqs, v_seq)]), 'hex');
                    EXIT;
                END IF;
                -- Its job is gone: nobody holds it.
                DELETE FROM keys k WHERE k.key = v_key.key AND k.seq = v_seq;
            END LOOP;
            IF v_seq IS NOT NULL THEN
                v_left := v_left || v_key.n;
                IF v_holder <> encode(uuid_send(v_key.id), 'hex') THEN
                    place := v_key.n;
                    holder := v_holder;
                    RETURN NEXT;
                END IF;
            END IF;
        END LOOP;
    END IF;
    IF v_seqs IS NULL AND p_limits IS NULL AND p_timeouts IS NULL AND p_expires IS NULL
       AND p_backoffs IS NULL AND p_tags IS NULL AND p_tenants IS NULL AND p_principals IS NULL
       AND p_correlation_ids IS NULL AND p_traces IS NULL AND p_parents IS NULL THEN
        -- Most jobs carry nothing special, and every column costs.
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
        RETURN;
    END IF;
    IF v_seqs IS NULL THEN
        SELECT array_agg(nextval(pg_get_serial_sequence('jobs', 'seq')) ORDER BY n) INTO v_seqs
          FROM generate_series(1, cardinality(p_ids)) AS n;
    END IF;
    WITH stored AS (
        INSERT INTO jobs (seq, id, ready, priority, due, created_at, expires_at, timeout,
                          max_attempts, budget, queue, task, gates, costs, key, key_window,
                          key_period, backoff, tags, tenant, principal, correlation_id, trace,
                          parent, payload)
        OVERRIDING SYSTEM VALUE
        SELECT t.seq, t.id, CASE WHEN t.due <= v_now AND t.limits IS NULL THEN 1 ELSE 0 END,
               t.priority, t.due, v_now, after(v_now, t.expires), t.timeout,
               t.max_attempts, t.max_attempts, t.queue, t.task,
               (SELECT array_agg(u.use ->> 0 ORDER BY u.n)
                  FROM json_array_elements(t.limits::json) WITH ORDINALITY AS u (use, n)),
               (SELECT array_agg((u.use ->> 1)::float8 ORDER BY u.n)
                  FROM json_array_elements(t.limits::json) WITH ORDINALITY AS u (use, n)),
               t.key, t.key_window, t.period, t.backoff, t.tags, t.tenant, t.principal,
               t.correlation_id, t.trace, t.parent, t.payload
          FROM (SELECT u.*, coalesce(u.asked, after(v_now, u.delay), v_now) AS due
                  FROM unnest(v_seqs, p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays,
                              p_max_attempts, p_payloads, p_timeouts, p_expires, p_keys,
                              p_windows, p_periods, p_limits, p_backoffs, p_tags, p_tenants,
                              p_principals, p_correlation_ids, p_traces, p_parents)
                       WITH ORDINALITY
                    AS u (seq, id, queue, task, priority, asked, delay, max_attempts, payload,
                          timeout, expires, key, key_window, period, limits, backoff, tags,
                          tenant, principal, correlation_id, trace, parent, n)
                OFFSET 0) AS t
         WHERE t.n <> ALL (v_left)
         ORDER BY t.n
        ON CONFLICT (id) DO NOTHING
        RETURNING seq, gates, due
    )
    SELECT array_agg(s.seq) INTO v_limited FROM stored s WHERE s.gates IS NOT NULL AND s.due <= v_now;
    IF v_limited IS NOT NULL AND p_place THEN
        PERFORM place_waiting(v_limited, v_now);
    END IF;
END $$;

-- The same for jobs with unique keys: waits no longer than p_patience for whoever decides one. Those
-- with limits are left to the next claim to put into their lanes: whoever waits must not hold the
-- lock that all limited jobs need.
CREATE FUNCTION insert_keyed_jobs(
    p_patience text, p_at timestamptz, p_durable boolean,
    p_ids uuid[], p_queues text[], p_tasks text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], p_max_attempts integer[], p_payloads bytea[],
    p_timeouts bigint[], p_expires bigint[], p_keys text[], p_windows text[], p_periods bigint[],
    p_limits text[], p_backoffs text[], p_tags text[], p_tenants text[], p_principals text[],
    p_correlation_ids text[], p_traces text[], p_parents text[]
) RETURNS TABLE (place integer, holder text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lock_timeout', p_patience, true);
    RETURN QUERY
    SELECT i.place, i.holder FROM insert_jobs(
        p_at, p_durable, false, p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays,
        p_max_attempts, p_payloads, p_timeouts, p_expires, p_keys, p_windows, p_periods, p_limits,
        p_backoffs, p_tags, p_tenants, p_principals, p_correlation_ids, p_traces, p_parents) AS i;
END $$;
