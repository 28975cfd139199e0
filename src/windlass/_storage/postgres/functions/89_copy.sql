-- Everything out of one storage and into another. Things come as lists in JSON: see copy/restore.py. Each
-- `restore_…` answers what, or how many, were new; together they are one transaction.

CREATE OR REPLACE FUNCTION dump_jobs(p_after bigint, p_limit integer) RETURNS SETOF jobs
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT j.* FROM jobs j
     WHERE j.seq > p_after
       AND NOT EXISTS (SELECT 1 FROM parts p JOIN flows f ON f.number = p.flow
                        WHERE p.id = j.part AND f.gone)
     ORDER BY j.seq LIMIT p_limit;
END $$;

-- The numbers of flows after one, in order. Ends that are only noted are counted first.
CREATE OR REPLACE FUNCTION dump_flows(p_at timestamptz, p_after bigint, p_limit integer)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_ends record;
BEGIN
    WITH noted AS (DELETE FROM member_ends m RETURNING m.part, m.was, m.now)
    SELECT array_agg(n.part) AS parts, array_agg(n.was::integer) AS was,
           array_agg(n.now::integer) AS now_is
      INTO v_ends FROM noted n;
    IF v_ends.parts IS NOT NULL THEN
        PERFORM count_members(
            coalesce(p_at, clock_timestamp()), v_ends.parts, v_ends.was, v_ends.now_is);
    END IF;
    RETURN ARRAY(SELECT f.number FROM flows f WHERE f.number > p_after AND NOT f.gone
                  ORDER BY f.number LIMIT p_limit);
END $$;

-- Flows without their jobs, and their parts; those whose id is stored are left out. How many were new.
--   p_flows   columns of `flows` by name, in order, but for those that follow from others
--   p_parts   columns of `parts` and `part_counts` by name; flow: its place in p_flows; on_failed:
--             `parts.failed`
CREATE OR REPLACE FUNCTION restore_flows(p_flows text, p_parts text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT t.*, t.key IS NOT NULL AND t.state = 0 AND NOT (t.sealed AND t.cancelled)
                    AND NOT EXISTS (SELECT 1 FROM flows o WHERE o.key = t.key AND o.holds_key)
               AS holds
          FROM json_populate_recordset(NULL::flows, p_flows::json) WITH ORDINALITY AS t
    ), stored AS (
        INSERT INTO flows (id, state, cancelled, holds_key, created_at, ended_at, expires, expires_at,
                           attend_at, name, key, tenant, sealed, grown, retry_rank)
        SELECT a.id, a.state, a.cancelled, a.holds, a.created_at, a.ended_at, a.expires,
               a.expires_at,
               CASE WHEN a.state > 0 THEN NULL WHEN a.cancelled THEN '-infinity'
                    ELSE a.expires_at END,
               a.name, a.key, a.tenant, a.sealed, a.grown, a.retry_rank
          FROM asked a ORDER BY a.ordinality
        ON CONFLICT (id) DO NOTHING
        RETURNING number, id
    ), parts_of AS MATERIALIZED (
        SELECT s.number AS stored_flow, s.id AS flow_id, t.*
          FROM json_to_recordset(p_parts::json) AS t (
                   flow integer, number integer, kind smallint, on_failed boolean, due boolean,
                   told_over boolean, told_broken boolean, told_unneeded boolean,
                   waiting integer, broken integer, unneeded integer, adding integer,
                   added_broken integer, rank bigint, added_id uuid, added_first integer,
                   counts_for integer, name text, task text,
                   after integer[], strict boolean[], feeds integer[], feeds_strict boolean[],
                   total integer, open integer, blocked integer, succeeded integer,
                   failed integer, cancelled integer, stopped integer, skipped integer)
          JOIN asked a ON a.ordinality = t.flow
          JOIN stored s ON s.id = a.id
    ), made AS (
        INSERT INTO parts (flow, flow_id, number, kind, failed, due, told_over, told_broken,
                           told_unneeded, waiting, broken, unneeded, adding, added_broken, rank,
                           added_id, added_first, counts_for, name, task, after, strict, feeds,
                           feeds_strict)
        SELECT p.stored_flow, p.flow_id, p.number, p.kind, p.on_failed, p.due,
               p.told_over, p.told_broken, p.told_unneeded, p.waiting, p.broken, p.unneeded,
               p.adding, p.added_broken, p.rank, p.added_id, p.added_first, p.counts_for, p.name, p.task, p.after, p.strict, p.feeds, p.feeds_strict
          FROM parts_of p ORDER BY p.stored_flow, p.number
        RETURNING id, flow, number
    ), counted AS (
        INSERT INTO part_counts (part, total, open, blocked, succeeded, failed, cancelled, stopped,
                                 skipped)
        SELECT m.id, p.total, p.open, p.blocked, p.succeeded, p.failed, p.cancelled, p.stopped,
               p.skipped
          FROM made m JOIN parts_of p ON p.stored_flow = m.flow AND p.number = m.number
    )
    SELECT count(*) INTO v_count FROM stored;
    RETURN v_count;
END $$;

-- Jobs with columns of `jobs` by name, and key_held and key_until: all but their numbers and where
-- they stand; ready: 4 to 6 for members that their flows hold. Those whose id is stored are left out. An undefined limit: WL001.
CREATE OR REPLACE FUNCTION restore_jobs(p_at timestamptz, p_jobs text)
RETURNS TABLE (id uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_jobs json := p_jobs::json;
    v_now timestamptz;
    v_new bigint[];
BEGIN
    PERFORM commit_durably(true);
    PERFORM require_limits(ARRAY(
        SELECT DISTINCT split_part(g, ':', 1)
          FROM json_populate_recordset(NULL::jobs, v_jobs) AS t, unnest(t.gates) AS g));
    PERFORM lock_all_limits();
    v_now := coalesce(p_at, clock_timestamp());
    WITH stored AS (
        INSERT INTO jobs (
            id, state, ready, solo, cancel_requested, priority, due, created_at, started_at,
            finished_at, expires_at, missed_at, missed_why, timeout, attempt, max_attempts,
            budget, claim_number, lost, ended_number, ended_verb, ended_by, queue, task, worker, gates,
            costs, key, key_window, key_period, backoff, tags, tenant, principal, correlation_id,
            trace, parent, progress, progress_note, reason, error_kind, error_message,
            error_traceback, error_frame, result, payload, throttled, on_failure, key_spent,
            on_lost, metadata, part, added, delay, expires)
        SELECT t.id, t.state,
               CASE WHEN t.ready >= 4 THEN t.ready WHEN t.state > 0 THEN NULL
                    WHEN t.due > v_now OR (t.gates IS NOT NULL AND NOT t.solo) THEN 0
                    WHEN t.solo THEN 3 ELSE 1 END,
               t.solo, t.cancel_requested, t.priority, t.due, t.created_at, t.started_at,
               t.finished_at, t.expires_at, t.missed_at, t.missed_why, t.timeout, t.attempt,
               t.max_attempts, t.budget, t.claim_number, t.lost, t.ended_number, t.ended_verb, t.ended_by,
               t.queue, t.task, t.worker, t.gates, t.costs, t.key, t.key_window, t.key_period,
               t.backoff, t.tags, t.tenant, t.principal, t.correlation_id, t.trace, t.parent,
               t.progress, t.progress_note, t.reason, t.error_kind, t.error_message,
               t.error_traceback, t.error_frame, t.result, t.payload, t.throttled, t.on_failure,
               coalesce(t.key_spent, false), t.on_lost, t.metadata, t.part, t.added, t.delay,
               t.expires
          FROM json_populate_recordset(NULL::jobs, v_jobs) WITH ORDINALITY AS t
         ORDER BY t.ordinality
        ON CONFLICT (id) DO NOTHING
        RETURNING seq
    )
    SELECT array_agg(s.seq) INTO v_new FROM stored s;
    PERFORM place_waiting(ARRAY(SELECT j.seq FROM jobs j WHERE j.seq = ANY (v_new)
                                   AND j.ready + 0 = 0 AND j.due <= v_now), v_now);
    -- What runs counts.
    INSERT INTO gates (gate)
    SELECT DISTINCT g FROM jobs j, unnest(j.gates) AS g
     WHERE j.seq = ANY (v_new) AND j.state + 0 = 1
    ON CONFLICT DO NOTHING;
    INSERT INTO holds (gate, seq, claim_number)
    SELECT DISTINCT g, j.seq, j.claim_number FROM jobs j, unnest(j.gates) AS g
     WHERE j.seq = ANY (v_new) AND j.state + 0 = 1
    ON CONFLICT DO NOTHING;
    -- A key that a job here holds stays with it.
    PERFORM take_key(k.key, j.seq, k.key_until, v_now)
       FROM json_to_recordset(v_jobs)
            AS k (id uuid, key text, key_held boolean, key_until timestamptz)
       JOIN jobs j ON j.id = k.id
      WHERE k.key_held AND j.seq = ANY (v_new);
    RETURN QUERY SELECT j.id FROM jobs j WHERE j.seq = ANY (v_new);
END $$;

-- History and log chunks, with columns of their tables by name, and the job's id in place of its
-- number.
CREATE OR REPLACE FUNCTION restore_traces(p_history text, p_logs text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history (seq, claim_number, attempt, verb, worker, started_at, ended_at,
                         error_kind, error_message, error_traceback, metadata)
    SELECT j.seq, t.claim_number, t.attempt, t.verb, t.worker, t.started_at, t.ended_at,
           t.error_kind, t.error_message, t.error_traceback, t.metadata
      FROM json_to_recordset(p_history::json) AS t (
               id uuid, claim_number integer, attempt integer, verb text, worker text,
               started_at timestamptz, ended_at timestamptz, error_kind text, error_message text,
               error_traceback text, metadata text)
      JOIN jobs j ON j.id = t.id
    ON CONFLICT DO NOTHING;
    INSERT INTO logs (seq, claim_number, number, lines)
    SELECT j.seq, t.claim_number, t.number, t.lines
      FROM json_to_recordset(p_logs::json)
           AS t (id uuid, claim_number integer, number integer, lines text)
      JOIN jobs j ON j.id = t.id
    ON CONFLICT DO NOTHING;
END $$;

-- Rollups replace those of an earlier copy, and stand beside what workers have counted here. No two
-- of a list are of the same minute, queue and task.
CREATE OR REPLACE FUNCTION restore_rollups(p_rollups text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    WITH stored AS (
        INSERT INTO rollups (minute, queue, task, worker, counts, wait, run)
        SELECT t.minute, t.queue, t.task, copied_from(), t.counts, t.wait::bigint[],
               t.run::bigint[]
          FROM json_to_recordset(p_rollups::json) AS t (
                   minute timestamptz, queue text, task text, counts bigint[], wait text, run text)
        ON CONFLICT (minute, queue, task, worker) DO UPDATE
           SET counts = excluded.counts, wait = excluded.wait, run = excluded.run
        RETURNING xmax = 0 AS made
    )
    SELECT count(*) FILTER (WHERE s.made) INTO v_count FROM stored s;
    RETURN v_count;
END $$;

CREATE OR REPLACE FUNCTION restore_queues(p_queues text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    INSERT INTO queues AS q (name, paused, settings, max_running, cool_until, cool_downs)
    SELECT t.name, t.paused, t.settings, t.max_running, t.cool_until, t.cool_downs
      FROM json_to_recordset(p_queues::json) AS t (
               name text, paused boolean, settings text, max_running integer,
               cool_until timestamptz, cool_downs integer)
    ON CONFLICT (name) DO UPDATE
       SET paused = excluded.paused, settings = excluded.settings,
           max_running = excluded.max_running, cool_until = excluded.cool_until,
           cool_downs = excluded.cool_downs
     WHERE (q.paused, q.settings, q.max_running, q.cool_until, q.cool_downs)
           IS DISTINCT FROM (excluded.paused, excluded.settings, excluded.max_running,
                             excluded.cool_until, excluded.cool_downs);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;

-- Budgets of another storage; lanes that wait for one may ask again.
CREATE OR REPLACE FUNCTION restore_gates(p_gates text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_gates json := p_gates::json;
    v_count integer;
BEGIN
    PERFORM require_limits(ARRAY(SELECT split_part(t.gate, ':', 1)
                                   FROM json_to_recordset(v_gates) AS t (gate text)));
    PERFORM lock_all_limits();
    INSERT INTO gates AS g (gate, spent_until, failures, opened, open_until)
    SELECT t.gate, t.spent_until, t.failures, t.opened, t.open_until
      FROM json_to_recordset(v_gates) AS t (
               gate text, spent_until bigint, failures bigint, opened bigint, open_until bigint)
    ON CONFLICT (gate) DO UPDATE
       SET spent_until = excluded.spent_until, failures = excluded.failures,
           opened = excluded.opened, open_until = excluded.open_until
     WHERE (g.spent_until, g.failures, g.opened, g.open_until)
           IS DISTINCT FROM (excluded.spent_until, excluded.failures, excluded.opened,
                             excluded.open_until);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    UPDATE bays b SET opens_at = 0
     WHERE b.gate IN (SELECT t.gate FROM json_to_recordset(v_gates) AS t (gate text));
    RETURN v_count;
END $$;

-- Records get numbers of this store, in the order in which they come. Their answers stay behind.
CREATE OR REPLACE FUNCTION restore_audits(p_audits text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    INSERT INTO audits (id, at, who, what, subject, detail, count)
    SELECT t.id, t.at, t.who, t.what, t.subject, t.detail, t.count
      FROM ROWS FROM (
             json_to_recordset(p_audits::json) AS (
                 id text, at timestamptz, who text, what text, subject text, detail text,
                 count bigint)
           ) WITH ORDINALITY AS t (id, at, who, what, subject, detail, count, n)
     ORDER BY t.n
    ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;

-- Events as `append_events` takes them, but for those that are there already.
CREATE OR REPLACE FUNCTION restore_events(
    p_ats timestamptz[], p_kinds text[], p_ids uuid[], p_tasks text[], p_queues text[],
    p_workers text[], p_attempts integer[]
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    INSERT INTO events (at, seq, attempt, kind, task, queue, worker)
    SELECT t.at, j.seq, t.attempt, t.kind, t.task, t.queue, t.worker
      FROM unnest(p_ats, p_kinds, p_ids, p_tasks, p_queues, p_workers, p_attempts)
           WITH ORDINALITY AS t (at, kind, id, task, queue, worker, attempt, n)
      JOIN jobs j ON j.id = t.id
     WHERE NOT EXISTS (
               SELECT 1 FROM events e
                WHERE e.seq = j.seq AND e.at = t.at
                  AND (e.kind, e.task, e.queue, e.worker, e.attempt)
                      = (t.kind, t.task, t.queue, t.worker, t.attempt))
     ORDER BY t.n;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;
