-- What people order for jobs, and the record of who did.

-- A note is JSON: the struct AuditNote in protocol/actions.py. NULL: no record is wanted. One
-- that is stored already stays as it is.
CREATE OR REPLACE FUNCTION keep_audit(
    p_note text, p_now timestamptz, p_count bigint, p_answers text[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_note json := p_note::json;
BEGIN
    IF p_note IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO audits (id, at, who, what, subject, detail, count, answers)
    VALUES (v_note ->> 'id', p_now, v_note ->> 'who', v_note ->> 'what', v_note ->> 'subject',
            v_note ->> 'detail', p_count, p_answers)
    ON CONFLICT (id) DO NOTHING;
END $$;

-- `ActionStore.record`.
CREATE OR REPLACE FUNCTION record_audit(
    p_at timestamptz, p_durable boolean, p_note text, p_count bigint
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM commit_durably(p_durable);
    PERFORM keep_audit(p_note, coalesce(p_at, clock_timestamp()), p_count);
END $$;

-- The answers to an order that has been carried out under this note; NULL: none has. Two calls with
-- one note follow each other: the second may be a repetition whose first is still under way.
CREATE OR REPLACE FUNCTION answered_before(p_note text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_id text := p_note::json ->> 'id';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema || '/audit/' || v_id, 0));
    RETURN (SELECT coalesce(a.answers, '{}') FROM audits a WHERE a.id = v_id);
END $$;

-- `ActionStore.audits`.
CREATE OR REPLACE FUNCTION list_audits(p_limit bigint, p_before bigint, p_subject text)
RETURNS SETOF audits
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_subject IS NULL THEN
        RETURN QUERY SELECT a.* FROM audits a WHERE a.number < p_before
                      ORDER BY a.number DESC LIMIT p_limit;
    ELSE
        RETURN QUERY SELECT a.* FROM audits a
                      WHERE hashtextextended(a.subject, 0) = hashtextextended(p_subject, 0)
                        AND a.subject = p_subject AND a.number < p_before
                      ORDER BY a.number DESC LIMIT p_limit;
    END IF;
END $$;

-- --- orders -------------------------------------------------------------------------------------

-- What an order for a member of a flow is answered, where p_answer holds for other jobs: see `FlowStore`.
CREATE OR REPLACE FUNCTION order_for_member(
    p_order text, p_answer text, p_part bigint, p_ready integer, p_due timestamptz
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_flow record;
BEGIN
    IF p_order = 'delete' OR (p_ready = 4 AND (p_order = 'run_now' OR p_due IS NOT NULL)) THEN
        RETURN 'wrong_state';
    ELSIF p_order <> 'requeue' THEN
        RETURN p_answer;
    END IF;
    SELECT f.number, f.key, f.cancelled OR f.gone AS closed INTO v_flow
      FROM parts p JOIN flows f ON f.number = p.flow WHERE p.id = p_part;
    RETURN CASE
        WHEN p_ready >= 5 OR v_flow.closed THEN 'wrong_state'
        WHEN EXISTS (SELECT 1 FROM flows o WHERE o.key = v_flow.key AND o.holds_key
                                             AND o.number <> v_flow.number) THEN 'conflict'
        ELSE p_answer END;
END $$;

-- One job takes what an order for it means at once. The caller has locked its row, and has called
-- `lock_limits` where that may be necessary (see `order_jobs`).
--   answer       done, requested, wrong_state or conflict; see ActionResult in protocol/actions.py
--   lane_left    its lane, if it stood in one and does not any more
--   place        it is to be placed (`place_waiting`)
--   ends, goes   it is to be cancelled, or deleted, together with others
--   part, was, is_now   a member that is to be counted: `count_members`
CREATE OR REPLACE FUNCTION order_one(
    p_order text, p_seq bigint, p_now timestamptz, p_reason text, p_due timestamptz,
    p_priority integer, p_queue text,
    OUT answer text, OUT lane_left bigint, OUT place boolean, OUT ends boolean, OUT goes boolean,
    OUT part bigint, OUT was integer, OUT is_now integer
)
LANGUAGE plpgsql AS $$
DECLARE
    v_job record;
    v_due timestamptz;
BEGIN
    SELECT j.state, j.ready, j.lane, j.due, j.solo, j.gates, j.part INTO v_job
      FROM jobs j WHERE j.seq = p_seq;
    answer := CASE
        WHEN p_order = 'requeue' AND v_job.state IN (3, 4, 5) THEN 'done'
        WHEN p_order = 'discard' AND v_job.state = 3 THEN 'done'
        WHEN p_order IN ('cancel', 'delete') AND v_job.state = 1 THEN 'requested'
        WHEN p_order IN ('cancel', 'edit', 'run_now') AND v_job.state = 0 THEN 'done'
        WHEN p_order = 'delete' THEN 'done'
        ELSE 'wrong_state' END;
    IF v_job.part IS NOT NULL AND answer <> 'wrong_state' THEN
        answer := order_for_member(p_order, answer, v_job.part, v_job.ready, p_due);
        IF p_order IN ('requeue', 'discard') THEN
            part := v_job.part;
            was := least(v_job.state, 4);
        END IF;
    END IF;
    IF answer = 'requested' THEN
        UPDATE jobs j SET cancel_requested = true WHERE j.seq = p_seq;
    ELSIF answer <> 'done' THEN
        part := NULL;
        RETURN;
    ELSIF p_order = 'requeue' THEN
        IF requeue_one(p_seq, p_now) IS NOT NULL THEN
            answer := 'conflict';
            part := NULL;
            RETURN;
        END IF;
        is_now := (SELECT (j.ready = 4)::integer FROM jobs j WHERE j.seq = p_seq);
    ELSIF p_order = 'discard' THEN
        is_now := 4;
        UPDATE jobs j SET state = 5, finished_at = p_now, reason = p_reason WHERE j.seq = p_seq;
    ELSIF p_order = 'run_now' THEN
        PERFORM hasten(ARRAY[p_seq], p_now);
    ELSIF p_order = 'cancel' THEN
        ends := true;
    ELSIF p_order = 'delete' THEN
        goes := true;
        lane_left := v_job.lane;
    ELSIF v_job.ready = 4 THEN
        UPDATE jobs j
           SET priority = coalesce(p_priority, j.priority), queue = coalesce(p_queue, j.queue)
         WHERE j.seq = p_seq;
    ELSE
        v_due := coalesce(p_due, v_job.due);
        place := v_due <= p_now AND v_job.gates IS NOT NULL AND NOT v_job.solo;
        lane_left := v_job.lane;
        UPDATE jobs j
           SET due = v_due, priority = coalesce(p_priority, j.priority),
               queue = coalesce(p_queue, j.queue), lane = NULL,
               ready = CASE WHEN v_due > p_now OR place THEN 0 WHEN j.solo THEN 3 ELSE 1 END
         WHERE j.seq = p_seq;
    END IF;
END $$;

-- Jobs that do not run are gone, with all that is stored of them. Lanes are the caller's business.
CREATE OR REPLACE FUNCTION delete_jobs(p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_keys text[];
    v_holders bigint[];
BEGIN
    WITH gone AS (
        DELETE FROM jobs WHERE seq = ANY (p_seqs) RETURNING seq, key
    )
    SELECT array_agg(g.key), array_agg(g.seq) INTO v_keys, v_holders
      FROM gone g WHERE g.key IS NOT NULL;
    IF v_keys IS NOT NULL THEN
        PERFORM free_keys(v_keys, v_holders);
    END IF;
    PERFORM forget_traces(p_seqs);
END $$;

-- `ActionStore.order`: one answer per entry of p_ids, in order. NULL among them is an id that cannot
-- be one.
--   p_order                      requeue, discard, cancel, run_now, delete or edit
--   p_reason                     of discard
--   p_due, p_priority, p_queue   of edit; NULL leaves one as it is
CREATE OR REPLACE FUNCTION order_jobs(
    p_at timestamptz, p_order text, p_ids uuid[], p_note text, p_reason text DEFAULT NULL,
    p_due timestamptz DEFAULT NULL, p_priority integer DEFAULT NULL, p_queue text DEFAULT NULL
) RETURNS text[]
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
DECLARE
    v_now timestamptz;
    v_answers text[] := answered_before(p_note);
    v_moves boolean := p_order IN ('cancel', 'delete', 'edit');
    v_held text[];
    v_turn record;
    v_one record;
    v_lanes bigint[] := '{}';
    v_place bigint[] := '{}';
    v_ends bigint[] := '{}';
    v_gone bigint[] := '{}';
    v_parts bigint[];
    v_was integer[];
    v_is_now integer[];
    v_count bigint;
BEGIN
    IF v_answers IS NOT NULL THEN
        RETURN v_answers;
    END IF;
    PERFORM commit_durably(true);
    v_answers := array_fill('unknown'::text, ARRAY[cardinality(p_ids)]);
    IF v_moves THEN
        v_held := limits_of_waiting(p_ids);
        IF v_held <> '{}' THEN
            PERFORM lock_limits(v_held);
            -- Others that need these limits wait behind this one now, and a row may be locked for long.
            PERFORM set_config('lock_timeout', '500ms', true);
        END IF;
    END IF;
    PERFORM 1 FROM jobs j WHERE j.id = ANY (p_ids) ORDER BY j.seq FOR UPDATE;
    -- One that ran a moment ago may wait by now, or have other limits.
    IF v_moves AND NOT limits_of_waiting(p_ids) <@ v_held THEN
        RAISE EXCEPTION 'a job waits again' USING ERRCODE = 'serialization_failure';
    END IF;
    v_now := coalesce(p_at, clock_timestamp());
    -- In the order of the keys, where they are taken; of one key, as they were given.
    FOR v_turn IN
        SELECT t.n::integer AS n, j.seq FROM unnest(p_ids) WITH ORDINALITY AS t (id, n)
          JOIN jobs j ON j.id = t.id
         ORDER BY CASE WHEN p_order = 'requeue' THEN j.key END, t.n
    LOOP
        CONTINUE WHEN v_turn.seq = ANY (v_gone);
        IF v_turn.seq = ANY (v_ends) THEN
            v_answers[v_turn.n] := 'wrong_state';
            CONTINUE;
        END IF;
        SELECT o.* INTO v_one FROM order_one(
            p_order, v_turn.seq, v_now, p_reason, p_due, p_priority, p_queue) AS o;
        v_answers[v_turn.n] := v_one.answer;
        v_lanes := v_lanes || v_one.lane_left;
        IF v_one.part IS NOT NULL THEN
            v_parts := v_parts || v_one.part;
            v_was := v_was || v_one.was;
            v_is_now := v_is_now || v_one.is_now;
        END IF;
        IF v_one.place THEN
            v_place := v_place || v_turn.seq;
        ELSIF v_one.ends THEN
            v_ends := v_ends || v_turn.seq;
        ELSIF v_one.goes THEN
            v_gone := v_gone || v_turn.seq;
        END IF;
    END LOOP;
    IF v_place <> '{}' THEN
        PERFORM place_waiting(v_place, v_now);
    END IF;
    IF v_ends <> '{}' THEN
        PERFORM end_waiting(v_ends, 4, NULL, v_now);
    END IF;
    IF v_gone <> '{}' THEN
        PERFORM delete_jobs(v_gone);
    END IF;
    v_lanes := ARRAY(SELECT DISTINCT l.lane FROM unnest(v_lanes) AS l (lane)
                      WHERE l.lane IS NOT NULL);
    IF v_lanes <> '{}' THEN
        PERFORM settle_lanes(v_lanes);
    END IF;
    IF v_parts IS NOT NULL THEN
        PERFORM count_members(v_now, v_parts, v_was, v_is_now);
    END IF;
    v_count := (SELECT count(*) FROM unnest(v_answers) AS a (answer)
                 WHERE a.answer IN ('done', 'requested'));
    IF v_count > 0 THEN
        PERFORM keep_audit(p_note, v_now, v_count, v_answers);
    END IF;
    RETURN v_answers;
END $$;

-- `ActionStore.insert`: jobs as `insert_listed` takes them, and its answer. p_tells, p_repeats: as
-- `insert_keyed_jobs`. A key under decision in an open transaction: 55P03.
CREATE OR REPLACE FUNCTION insert_ordered(
    p_at timestamptz, p_durable boolean, p_jobs text, p_note text, p_tells boolean DEFAULT false,
    p_repeats boolean DEFAULT false
) RETURNS TABLE (place integer, holder text, replaced boolean)
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_held integer := 0;
BEGIN
    FOR place, holder, replaced IN
        SELECT i.place, i.holder, i.replaced
          FROM insert_listed(v_now, p_durable, p_jobs::json, true, p_repeats) AS i
    LOOP
        v_held := v_held + (holder IS NOT NULL AND replaced IS NOT NULL)::integer;
        IF p_tells OR replaced IS NOT NULL THEN
            RETURN NEXT;
        END IF;
    END LOOP;
    IF json_array_length(p_jobs::json) > v_held THEN
        PERFORM keep_audit(p_note, v_now, json_array_length(p_jobs::json) - v_held);
    END IF;
END $$;

-- `MaintenanceStore.prune_audits`.
CREATE OR REPLACE FUNCTION prune_audits(p_at timestamptz, p_older bigint, p_limit integer)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    DELETE FROM audits WHERE number = ANY (ARRAY(
        SELECT a.number FROM audits a
         WHERE a.at < coalesce(p_at, clock_timestamp()) - p_older * interval '1 microsecond'
         ORDER BY a.at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;
