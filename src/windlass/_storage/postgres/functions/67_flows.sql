-- Starting flows, what operators do to them, and what is read of them.

-- Store the rows of flows, as far as they are new. In the order of their keys: two of these never wait for
-- each other.
--   p_flows   JSON, in order: id, name, key, tenant, expires (microseconds), stays (how long it may
--             stay sealed; NULL: it is not), spare (how long before its end a sealed flow gives its
--             key up; NULL: it does not)
--   numbers   of those that were stored, side by side; 0: it was not
--   ids       of the flows that are the answer
CREATE OR REPLACE FUNCTION store_flows(
    p_flows json, p_now timestamptz, OUT numbers bigint[], OUT ids uuid[], OUT repeated boolean[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_flow record;
    v_number bigint;
    v_holder record;
BEGIN
    numbers := array_fill(0::bigint, ARRAY[json_array_length(p_flows)]);
    ids := array_fill(NULL::uuid, ARRAY[json_array_length(p_flows)]);
    repeated := array_fill(false, ARRAY[json_array_length(p_flows)]);
    FOR v_flow IN
        SELECT t.* FROM ROWS FROM (
            json_to_recordset(p_flows) AS (id uuid, name text, key text, tenant text, expires bigint,
                                           stays bigint, spare bigint)
        ) WITH ORDINALITY AS t (id, name, key, tenant, expires, stays, spare, n)
         ORDER BY t.key COLLATE "C", t.n
    LOOP
        LOOP
            ids[v_flow.n] := v_flow.id;
            IF EXISTS (SELECT 1 FROM parts p WHERE p.added_id = v_flow.id) THEN
                repeated[v_flow.n] := true;
                EXIT;
            END IF;
            INSERT INTO flows (id, holds_key, created_at, expires, expires_at, attend_at, name, key,
                               tenant, sealed)
            VALUES (v_flow.id, v_flow.key IS NOT NULL, p_now, v_flow.expires,
                    after(p_now, coalesce(v_flow.stays, v_flow.expires)),
                    after(p_now, coalesce(v_flow.stays, v_flow.expires)), v_flow.name,
                    v_flow.key, v_flow.tenant, v_flow.stays IS NOT NULL)
            ON CONFLICT DO NOTHING RETURNING number INTO v_number;
            IF FOUND THEN
                numbers[v_flow.n] := v_number;
                EXIT;
            END IF;
            IF EXISTS (SELECT 1 FROM flows f WHERE f.id = v_flow.id) THEN
                repeated[v_flow.n] := true;
                EXIT;
            END IF;
            SELECT f.id, f.sealed AND f.expires_at <= after(p_now, v_flow.spare) AS is_late
              INTO v_holder FROM flows f WHERE f.key = v_flow.key AND f.holds_key;
            IF FOUND THEN
                IF v_holder.is_late THEN
                    -- Not here: this call may wait for limits and keys, and must not hold that flow.
                    RAISE EXCEPTION 'the holder of the key is not whole'
                        USING ERRCODE = 'WL425', DETAIL = v_flow.key;
                END IF;
                ids[v_flow.n] := v_holder.id;
                EXIT;
            END IF;
            -- The holder has ended in this moment.
        END LOOP;
    END LOOP;
END $$;

-- Cancel the flow that holds a key, if it is sealed and gets no more jobs. p_spare: as `store_flows` has it.
-- One that another transaction has is left to it.
CREATE OR REPLACE FUNCTION give_flow_key_up(
    p_at timestamptz, p_durable boolean, p_key text, p_spare bigint
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_flow bigint;
BEGIN
    PERFORM commit_durably(p_durable);
    SELECT f.number INTO v_flow FROM flows f
     WHERE f.key = p_key AND f.holds_key AND f.sealed AND NOT f.cancelled
       AND f.expires_at <= after(v_now, p_spare)
       FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM cancel_flow(v_flow, v_now);
    RETURN true;
END $$;

-- Store the parts of new flows.
--   p_parts   JSON, in order: flow (its place in p_flows), number, name, kind, task, failed, after,
--             strict, feeds, feeds_strict, jobs (how many), sealed (its flow is)
--   ids       side by side; 0: its flow was not stored
--   blocked   whether its jobs are
CREATE OR REPLACE FUNCTION store_parts(
    p_parts json, p_numbers bigint[], p_flow_ids uuid[], OUT ids bigint[], OUT blocked boolean[]
)
LANGUAGE plpgsql AS $$
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT t.*, p_numbers[t.flow] AS stored_flow,
               cardinality(t.after) > 0 OR t.failed OR t.sealed AS waits
          FROM ROWS FROM (
            json_to_recordset(p_parts) AS (
                flow integer, number integer, name text, kind smallint, task text, failed boolean,
                after integer[], strict boolean[], feeds integer[], feeds_strict boolean[],
                jobs integer, sealed boolean)
          ) WITH ORDINALITY AS t (flow, number, name, kind, task, failed, after, strict, feeds,
                                  feeds_strict, jobs, sealed, n)
    ), stored AS (
        INSERT INTO parts (flow, flow_id, number, kind, failed, waiting, name, task, after,
                           strict, feeds, feeds_strict, rank)
        SELECT a.stored_flow, p_flow_ids[a.flow], a.number, a.kind, a.failed,
               cardinality(a.after), a.name, a.task, a.after, a.strict, a.feeds, a.feeds_strict,
               part_rank(a.kind, a.number, 0)
          FROM asked a WHERE a.stored_flow > 0 ORDER BY a.n
        RETURNING id, flow, number
    ), counted AS (
        INSERT INTO part_counts (part, total, open, blocked)
        SELECT s.id, a.jobs, a.jobs, CASE WHEN a.waits THEN a.jobs ELSE 0 END
          FROM stored s JOIN asked a ON a.stored_flow = s.flow AND a.number = s.number
    )
    SELECT array_agg(coalesce(s.id, 0) ORDER BY a.n), array_agg(a.waits ORDER BY a.n)
      INTO ids, blocked
      FROM asked a LEFT JOIN stored s ON s.flow = a.stored_flow AND s.number = a.number;
END $$;

-- An id of these that is stored, or named twice: WL424. A new flow brings new jobs.
CREATE OR REPLACE FUNCTION refuse_stored(p_ids uuid[], p_parts bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_id uuid;
BEGIN
    SELECT t.id INTO v_id FROM unnest(p_ids, p_parts) WITH ORDINALITY AS t (id, part, n)
      LEFT JOIN jobs j ON j.id = t.id
     WHERE t.part > 0
       AND (j.part IS DISTINCT FROM t.part
            OR EXISTS (SELECT 1 FROM unnest(p_ids) WITH ORDINALITY AS o (id, n)
                        WHERE o.id = t.id AND o.n < t.n))
     LIMIT 1;
    IF v_id IS NULL THEN
        -- The same call is under way in another session: from the start.
        RAISE EXCEPTION 'the flow has changed' USING ERRCODE = 'serialization_failure';
    END IF;
    RAISE EXCEPTION 'the id names another call'
        USING ERRCODE = 'WL424', DETAIL = encode(uuid_send(v_id), 'hex');
END $$;

-- Store jobs of flows. p_parts, p_blocked: their parts (0: not to be stored), and whether they wait for
-- others. The rest: as `insert_jobs`, p_plain: all from p_timeouts on are NULL.
CREATE OR REPLACE FUNCTION store_members(
    p_now timestamptz, p_durable boolean, p_plain boolean, p_parts bigint[], p_blocked boolean[],
    p_ids uuid[], p_queues text[], p_tasks text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], p_max_attempts integer[], p_payloads bytea[],
    p_timeouts bigint[] DEFAULT NULL, p_expires bigint[] DEFAULT NULL,
    p_keys text[] DEFAULT NULL, p_windows text[] DEFAULT NULL, p_periods bigint[] DEFAULT NULL,
    p_limits text[] DEFAULT NULL, p_backoffs text[] DEFAULT NULL, p_tags text[] DEFAULT NULL,
    p_tenants text[] DEFAULT NULL, p_principals text[] DEFAULT NULL,
    p_correlation_ids text[] DEFAULT NULL, p_traces text[] DEFAULT NULL,
    p_parents text[] DEFAULT NULL, p_conflicts text[] DEFAULT NULL,
    p_on_failures text[] DEFAULT NULL, p_on_losts text[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_stored bigint;
BEGIN
    IF p_plain THEN
        INSERT INTO jobs (id, ready, priority, due, created_at, max_attempts, budget, queue,
                          task, payload, part, delay)
        SELECT t.id, CASE WHEN t.blocked THEN 4 WHEN t.due <= p_now THEN 1 ELSE 0 END,
               t.priority, t.due, p_now, t.max_attempts, t.max_attempts, t.queue, t.task,
               t.payload, t.part, CASE WHEN t.blocked AND t.asked IS NULL THEN t.delay END
          FROM (SELECT u.*, coalesce(u.asked, after(p_now, u.delay), p_now) AS due
                  FROM unnest(p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays,
                              p_max_attempts, p_payloads, p_parts, p_blocked) WITH ORDINALITY
                    AS u (id, queue, task, priority, asked, delay, max_attempts, payload,
                          part, blocked, n)
                 WHERE u.part > 0
                OFFSET 0) AS t
         ORDER BY t.n
        ON CONFLICT (id) DO NOTHING;
        GET DIAGNOSTICS v_stored = ROW_COUNT;
    ELSE
        PERFORM insert_jobs(
            p_now, p_durable, false, p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays,
            p_max_attempts, p_payloads, p_timeouts, p_expires, p_keys, p_windows, p_periods,
            p_limits, p_backoffs, p_tags, p_tenants, p_principals, p_correlation_ids,
            p_traces, p_parents, p_conflicts, p_on_failures, false, p_on_losts, false,
            p_parts, p_blocked);
        v_stored := (SELECT count(*) FROM unnest(p_ids, p_parts) AS t (id, part)
                       JOIN jobs j ON j.id = t.id AND j.part = t.part);
    END IF;
    IF v_stored <> (SELECT count(*) FROM unnest(p_parts) AS m WHERE m > 0)
       OR (NOT p_plain AND v_stored <> (SELECT count(DISTINCT t.id)
                                          FROM unnest(p_ids, p_parts) AS t (id, part)
                                         WHERE t.part > 0)) THEN
        PERFORM refuse_stored(p_ids, p_parts);
    END IF;
END $$;

-- `FlowStore.start`. p_flows and p_parts: `store_flows`, `store_parts`. p_places: of each job's part in
-- p_parts. The others: as `insert_jobs`, p_plain: all from p_timeouts on are NULL. p_spreads: parts
-- without jobs have ended, or jobs are to be skipped, from the start.
CREATE OR REPLACE FUNCTION start_flows(
    p_at timestamptz, p_durable boolean, p_flows text, p_parts text, p_spreads boolean,
    p_plain boolean, p_places integer[],
    p_ids uuid[], p_queues text[], p_tasks text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], p_max_attempts integer[], p_payloads bytea[],
    p_timeouts bigint[] DEFAULT NULL, p_expires bigint[] DEFAULT NULL,
    p_keys text[] DEFAULT NULL, p_windows text[] DEFAULT NULL, p_periods bigint[] DEFAULT NULL,
    p_limits text[] DEFAULT NULL, p_backoffs text[] DEFAULT NULL, p_tags text[] DEFAULT NULL,
    p_tenants text[] DEFAULT NULL, p_principals text[] DEFAULT NULL,
    p_correlation_ids text[] DEFAULT NULL, p_traces text[] DEFAULT NULL,
    p_parents text[] DEFAULT NULL, p_conflicts text[] DEFAULT NULL,
    p_on_failures text[] DEFAULT NULL, p_on_losts text[] DEFAULT NULL
) RETURNS TABLE (id text, created boolean, repeated boolean)
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_flows record;
    v_parts record;
    v_flow record;
BEGIN
    PERFORM commit_durably(p_durable);
    SELECT s.* INTO v_flows FROM store_flows(p_flows::json, v_now) AS s;
    IF 0 < ANY (v_flows.numbers) THEN
        SELECT s.* INTO v_parts FROM store_parts(p_parts::json, v_flows.numbers, v_flows.ids) AS s;
        PERFORM store_members(
            v_now, p_durable, p_plain,
            ARRAY(SELECT v_parts.ids[t.place]
                    FROM unnest(p_places) WITH ORDINALITY AS t (place, n) ORDER BY t.n),
            ARRAY(SELECT v_parts.blocked[t.place]
                    FROM unnest(p_places) WITH ORDINALITY AS t (place, n) ORDER BY t.n),
            p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays, p_max_attempts, p_payloads,
            p_timeouts, p_expires, p_keys, p_windows, p_periods, p_limits, p_backoffs, p_tags,
            p_tenants, p_principals, p_correlation_ids, p_traces, p_parents, p_conflicts,
            p_on_failures, p_on_losts);
        IF p_spreads THEN
            FOR v_flow IN
                SELECT p.flow, array_agg(p.number) AS numbers FROM parts p
                 WHERE p.id = ANY (v_parts.ids) GROUP BY p.flow ORDER BY p.flow
            LOOP
                PERFORM spread_parts(v_flow.flow, v_flow.numbers, v_now);
            END LOOP;
            PERFORM settle_part(p.id, 1000000, v_now) FROM parts p
              WHERE p.id = ANY (v_parts.ids) AND p.after = '{}' AND p.due;
        END IF;
    END IF;
    RETURN QUERY
    SELECT encode(uuid_send(t.id), 'hex'), t.number > 0 OR t.again, t.again
      FROM unnest(v_flows.ids, v_flows.numbers, v_flows.repeated) WITH ORDINALITY
           AS t (id, number, again, n)
     ORDER BY t.n;
END $$;

-- `FlowStore.extend`: whether the flow takes them. p_numbers: of each job's part. p_stays: how long it
-- may stay sealed. The rest: as `store_members`.
--
-- The flow is locked after the counts of its parts, as everywhere. So what was seen of it before may have
-- changed then: from the start.
CREATE OR REPLACE FUNCTION extend_flow(
    p_at timestamptz, p_durable boolean, p_flow uuid, p_last boolean, p_stays bigint,
    p_plain boolean, p_numbers integer[],
    p_ids uuid[], p_queues text[], p_tasks text[], p_priorities integer[],
    p_dues timestamptz[], p_delays bigint[], p_max_attempts integer[], p_payloads bytea[],
    p_timeouts bigint[] DEFAULT NULL, p_expires bigint[] DEFAULT NULL,
    p_keys text[] DEFAULT NULL, p_windows text[] DEFAULT NULL, p_periods bigint[] DEFAULT NULL,
    p_limits text[] DEFAULT NULL, p_backoffs text[] DEFAULT NULL, p_tags text[] DEFAULT NULL,
    p_tenants text[] DEFAULT NULL, p_principals text[] DEFAULT NULL,
    p_correlation_ids text[] DEFAULT NULL, p_traces text[] DEFAULT NULL,
    p_parents text[] DEFAULT NULL, p_conflicts text[] DEFAULT NULL,
    p_on_failures text[] DEFAULT NULL, p_on_losts text[] DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_many integer := cardinality(p_ids);
    v_flow record;
    v_members bigint[];
BEGIN
    PERFORM commit_durably(p_durable);
    SELECT f.number, f.sealed, f.cancelled INTO v_flow FROM flows f
     WHERE f.id = p_flow AND NOT f.gone;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF EXISTS (SELECT 1 FROM jobs j WHERE j.id = p_ids[1]) THEN
        RETURN true;  -- a repeated call
    ELSIF v_flow.cancelled OR NOT v_flow.sealed THEN
        RETURN NOT v_flow.cancelled;
    END IF;
    IF v_many > 0 THEN
        v_members := ARRAY(SELECT p.id FROM unnest(p_numbers) WITH ORDINALITY AS t (number, n)
                             JOIN parts p ON p.flow = v_flow.number AND p.number = t.number
                            ORDER BY t.n);
        PERFORM store_members(
            v_now, p_durable, p_plain, v_members, array_fill(true, ARRAY[v_many]),
            p_ids, p_queues, p_tasks, p_priorities, p_dues, p_delays, p_max_attempts, p_payloads,
            p_timeouts, p_expires, p_keys, p_windows, p_periods, p_limits, p_backoffs, p_tags,
            p_tenants, p_principals, p_correlation_ids, p_traces, p_parents, p_conflicts,
            p_on_failures, p_on_losts);
        PERFORM count_members(
            v_now, v_members, array_fill(NULL::integer, ARRAY[v_many]),
            array_fill(1, ARRAY[v_many]));
    END IF;
    UPDATE flows f
       SET sealed = NOT p_last,
           expires_at = after(v_now, CASE WHEN p_last THEN f.expires ELSE p_stays END),
           attend_at = after(v_now, CASE WHEN p_last THEN f.expires ELSE p_stays END)
     WHERE f.number = v_flow.number AND f.sealed AND NOT f.cancelled AND NOT f.gone;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the flow has changed' USING ERRCODE = 'serialization_failure';
    END IF;
    IF p_last THEN
        PERFORM spread_parts(
            v_flow.number, ARRAY(SELECT p.number FROM parts p WHERE p.flow = v_flow.number),
            v_now);
    END IF;
    RETURN true;
END $$;

-- --- what operators do ----------------------------------------------------------------------------

-- Let an ended flow run again, whose lock the caller has, and the first of its members come back.
CREATE OR REPLACE FUNCTION begin_retry(p_flow bigint, p_limit integer, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE flows f
       SET cancelled = false, retry_seq = 0,
           retry_rank = (SELECT min(p.rank) FROM parts p WHERE p.flow = p_flow)
     WHERE f.number = p_flow;
    PERFORM spread_parts(p_flow, ARRAY(SELECT p.number FROM parts p WHERE p.flow = p_flow), p_now);
    PERFORM continue_retry(p_flow, p_limit, p_now);
END $$;

-- `FlowStore.act`: one answer per entry of p_ids, in order. NULL among them is an id that cannot be one.
-- p_retried: members of a flow that this call lets come back.
CREATE OR REPLACE FUNCTION act_on_flows(
    p_at timestamptz, p_action text, p_ids uuid[], p_note text, p_retried integer DEFAULT 500
) RETURNS text[]
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_answers text[] := answered_before(p_note);
    v_flow record;
    v_retried bigint[] := '{}';
    v_count bigint;
BEGIN
    IF v_answers IS NOT NULL THEN
        RETURN v_answers;
    END IF;
    PERFORM commit_durably(true);
    v_answers := array_fill('unknown'::text, ARRAY[cardinality(p_ids)]);
    PERFORM 1 FROM flows f WHERE f.id = ANY (p_ids) ORDER BY f.number FOR UPDATE;
    FOR v_flow IN
        SELECT t.n, f.number, f.state, f.key, f.sealed,
               EXISTS (SELECT 1 FROM flows o WHERE o.key = f.key AND o.holds_key) AS superseded
          FROM unnest(p_ids) WITH ORDINALITY AS t (id, n) JOIN flows f ON f.id = t.id
         WHERE NOT f.gone ORDER BY t.n
    LOOP
        IF p_action = 'cancel' THEN
            v_answers[v_flow.n] := CASE WHEN v_flow.state = 0 THEN 'done' ELSE 'wrong_state' END;
            IF v_flow.state = 0 THEN
                PERFORM cancel_flow(v_flow.number, v_now);
            END IF;
        ELSIF v_flow.sealed OR v_flow.state < 2 OR v_flow.number = ANY (v_retried) THEN
            v_answers[v_flow.n] := 'wrong_state';
        ELSIF v_flow.superseded OR EXISTS (SELECT 1 FROM flows f WHERE f.number = ANY (v_retried)
                                                                   AND f.key = v_flow.key) THEN
            v_answers[v_flow.n] := 'conflict';
        ELSE
            v_answers[v_flow.n] := 'done';
            v_retried := v_retried || v_flow.number;
        END IF;
    END LOOP;
    PERFORM begin_retry(r.number, p_retried, v_now) FROM unnest(v_retried) AS r (number);
    v_count := (SELECT count(*) FROM unnest(v_answers) AS a (answer) WHERE a.answer = 'done');
    IF v_count > 0 THEN
        PERFORM keep_audit(p_note, v_now, v_count, v_answers);
    END IF;
    RETURN v_answers;
END $$;

-- `FlowStore.prune`. A flow is marked first: from then on it is not found. Its jobs may go in portions.
CREATE OR REPLACE FUNCTION prune_flows(
    p_at timestamptz, p_state smallint, p_older bigint, p_limit integer
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_before timestamptz := coalesce(p_at, clock_timestamp()) - p_older * interval '1 microsecond';
    v_flow bigint;
    v_met bigint[] := '{}';
    v_parts bigint[];
    v_seqs bigint[];
    v_deleted integer := 0;
BEGIN
    WHILE v_deleted < p_limit LOOP
        SELECT f.number INTO v_flow FROM flows f
         WHERE f.ended_at IS NOT NULL AND f.state = p_state AND f.ended_at < v_before
           AND f.number <> ALL (v_met)
           AND NOT EXISTS (SELECT 1 FROM parts p JOIN part_counts c ON c.part = p.id
                            WHERE p.flow = f.number AND c.open > 0)
         ORDER BY f.state, f.ended_at LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        v_met := v_met || v_flow;
        v_parts := ARRAY(SELECT p.id FROM parts p WHERE p.flow = v_flow);
        v_seqs := ARRAY(SELECT j.seq FROM jobs j WHERE j.part = ANY (v_parts) AND j.state >= 2
                         LIMIT p_limit - v_deleted FOR UPDATE SKIP LOCKED);
        PERFORM delete_jobs(v_seqs);
        v_deleted := v_deleted + cardinality(v_seqs);
        IF EXISTS (SELECT 1 FROM jobs j WHERE j.part = ANY (v_parts)) THEN
            UPDATE flows f SET gone = true WHERE f.number = v_flow;
        ELSE
            DELETE FROM part_counts c WHERE c.part = ANY (v_parts);
            DELETE FROM member_ends m WHERE m.part = ANY (v_parts);
            DELETE FROM added_flows a WHERE a.part = ANY (v_parts);
            DELETE FROM parts p WHERE p.id = ANY (v_parts);
            DELETE FROM flows f WHERE f.number = v_flow;
        END IF;
    END LOOP;
    RETURN v_deleted;
END $$;

-- --- what is read ---------------------------------------------------------------------------------

-- `FlowStore.members`.
CREATE OR REPLACE FUNCTION list_members(
    p_flow uuid, p_part integer, p_after bigint, p_limit integer
) RETURNS TABLE (
    seq bigint, id uuid, state smallint, blocked boolean, result bytea, error_kind text,
    error_message text, reason text
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_part bigint := (SELECT p.id FROM flows f JOIN parts p ON p.flow = f.number
                       WHERE f.id = p_flow AND NOT f.gone AND p.number = p_part);
BEGIN
    IF v_part IS NULL THEN
        -- A flow that was added to another one.
        v_part := (SELECT p.id FROM parts a JOIN flows f ON f.number = a.flow AND NOT f.gone
                     JOIN parts p ON p.flow = a.flow AND p.number = a.added_first + p_part
                    WHERE a.added_id = p_flow);
    END IF;
    -- Line by line: the index has them in order within each.
    RETURN QUERY
    SELECT j.seq, j.id, j.state, j.ready IS NOT DISTINCT FROM 4, j.result, j.error_kind,
           j.error_message, j.reason
      FROM (SELECT l.seq
              FROM (SELECT i.seq FROM generate_series(0, 6) AS line (ready)
                     CROSS JOIN LATERAL (
                           SELECT m.seq FROM jobs m
                            WHERE m.part = v_part AND m.ready = line.ready AND m.seq > p_after
                              AND m.added IS NOT TRUE
                            ORDER BY m.part, m.ready, m.seq LIMIT p_limit) AS i
                    UNION ALL
                    (SELECT m.seq FROM jobs m
                      WHERE m.part = v_part AND m.ready IS NULL AND m.seq > p_after
                        AND m.added IS NOT TRUE
                      ORDER BY m.part, m.ready, m.seq LIMIT p_limit)) AS l
             ORDER BY l.seq LIMIT p_limit) AS page
      JOIN jobs j ON j.seq = page.seq
     ORDER BY j.seq;
END $$;

-- Flows with the counts of their members, by number.
CREATE OR REPLACE FUNCTION read_flows(p_numbers bigint[])
RETURNS TABLE (
    number bigint, id uuid, name text, state smallint, created_at timestamptz,
    ended_at timestamptz, key text, cancelled boolean, sealed boolean,
    expires_at timestamptz, expires bigint, tenant text, counts bigint[]
)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT f.number, f.id, f.name, f.state, f.created_at, f.ended_at, f.key, f.cancelled,
           f.sealed, f.expires_at, f.expires, f.tenant,
           (SELECT ARRAY[coalesce(sum(c.total), 0), coalesce(sum(c.open), 0),
                         coalesce(sum(c.succeeded), 0), coalesce(sum(c.failed), 0),
                         coalesce(sum(c.cancelled), 0), coalesce(sum(c.stopped), 0),
                         coalesce(sum(c.skipped), 0)]::bigint[]
              FROM parts p JOIN part_counts c ON c.part = p.id
             WHERE p.flow = f.number AND p.kind = 0)
      FROM flows f WHERE f.number = ANY (p_numbers)
     ORDER BY f.number DESC;
END $$;

-- `FlowStore.find`: their numbers.
CREATE OR REPLACE FUNCTION find_flows(
    p_states smallint[], p_name text, p_key text, p_tenant text, p_before bigint, p_limit integer
) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT f.number FROM flows f
         WHERE f.number < p_before AND NOT f.gone
           AND (p_states IS NULL OR f.state = ANY (p_states))
           AND (p_name IS NULL OR f.name = p_name)
           AND (p_key IS NULL OR f.key = p_key)
           AND (p_tenant IS NULL OR f.tenant = p_tenant)
         ORDER BY f.number DESC LIMIT p_limit);
END $$;

-- The stored counts of the parts of up to p_limit flows behind a number, and what their jobs say. Ends
-- that are noted only (`member_ends`) are not counted in either.
CREATE OR REPLACE FUNCTION recount_flows(p_after bigint, p_limit integer)
RETURNS TABLE (
    flow bigint, id uuid, part bigint, number integer, name text, stored integer[], counted integer[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT f.number, f.id, p.id, p.number, p.name,
           ARRAY[c.succeeded, c.failed, c.cancelled, c.stopped, c.skipped, c.open, c.blocked,
                 c.total],
           ARRAY[s.n[3], s.n[4], s.n[5], s.n[6], s.n[7], s.n[1] + s.n[2], s.n[2],
                 s.n[1] + s.n[2] + s.n[3] + s.n[4] + s.n[5] + s.n[6] + s.n[7]]
      FROM (SELECT o.number, o.id FROM flows o WHERE o.number > p_after AND NOT o.gone
             ORDER BY o.number LIMIT p_limit) AS f
      JOIN parts p ON p.flow = f.number
      JOIN part_counts c ON c.part = p.id
     CROSS JOIN LATERAL (
           SELECT array_agg(coalesce(k.many, 0)::integer ORDER BY w.line) AS n
             FROM generate_series(0, 6) AS w (line)
             LEFT JOIN (
                  SELECT a.line, sum(a.many) AS many
                    FROM (SELECT CASE WHEN j.ready >= 5 THEN j.ready WHEN j.ready = 4 THEN 1
                                      WHEN j.state < 2 THEN 0 ELSE least(j.state, 4) END::integer
                                 AS line, 1 AS many
                            FROM jobs j WHERE j.part = p.id
                          UNION ALL
                          SELECT m.now::integer, -1 FROM member_ends m WHERE m.part = p.id
                          UNION ALL
                          SELECT m.was::integer, 1 FROM member_ends m
                           WHERE m.part = p.id AND m.was IS NOT NULL) AS a
                   GROUP BY a.line) AS k ON k.line = w.line) AS s
     ORDER BY f.number, p.number;
END $$;

-- Correct the counts of the parts of flows, and what follows from them.
CREATE OR REPLACE FUNCTION repair_flows(p_flows bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
DECLARE
    v_flow bigint;
BEGIN
    PERFORM 1 FROM part_counts c
      WHERE c.part = ANY (ARRAY(SELECT p.id FROM parts p WHERE p.flow = ANY (p_flows)))
      ORDER BY c.part FOR UPDATE;
    PERFORM 1 FROM flows f WHERE f.number = ANY (p_flows) ORDER BY f.number FOR UPDATE;
    FOREACH v_flow IN ARRAY p_flows LOOP
        UPDATE part_counts c
           SET succeeded = r.counted[1], failed = r.counted[2], cancelled = r.counted[3],
               stopped = r.counted[4], skipped = r.counted[5], open = r.counted[6],
               blocked = r.counted[7], total = r.counted[8]
          FROM recount_flows(v_flow - 1, 1) AS r
         WHERE c.part = r.part AND r.stored <> r.counted;
        PERFORM spread_parts(
            v_flow, ARRAY(SELECT p.number FROM parts p WHERE p.flow = v_flow), p_now);
    END LOOP;
END $$;

-- `FlowStore.recount`: what does not agree, in words. next: the number of the last flow, if there may be
-- more.
CREATE OR REPLACE FUNCTION recount(
    p_at timestamptz, p_after bigint, p_limit integer, p_repair boolean,
    OUT wrong text[], OUT next bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    v_flows bigint[];
BEGIN
    SELECT array_agg(concat('flow ', encode(uuid_send(w.id), 'hex'), ', ', w.name, ': ', w.line,
                            ' is ', w.stored, ', and ', w.counted, ' jobs are')
                     ORDER BY w.flow, w.number, w.n),
           array_agg(DISTINCT w.flow)
      INTO wrong, v_flows
      FROM (SELECT r.flow, r.id, r.number, r.name, l.*
              FROM recount_flows(p_after, p_limit) AS r
             CROSS JOIN unnest(
                   '{succeeded,failed,cancelled,stopped,skipped,open,blocked,total}'::text[],
                   r.stored, r.counted) WITH ORDINALITY AS l (line, stored, counted, n)
             WHERE l.stored <> l.counted) AS w;
    IF p_repair AND v_flows IS NOT NULL THEN
        PERFORM repair_flows(v_flows, coalesce(p_at, clock_timestamp()));
    END IF;
    SELECT CASE WHEN count(*) = p_limit THEN max(f.number) END INTO next
      FROM (SELECT o.number FROM flows o WHERE o.number > p_after AND NOT o.gone
             ORDER BY o.number LIMIT p_limit) AS f;
END $$;
