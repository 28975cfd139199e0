-- Settling: what becomes of the blocked jobs of parts that are due, and of the members of cancelled flows.
-- Nothing here waits for a row: what another transaction has is left to the next call.

-- Cancel a flow, whose lock the caller has. Its members follow in portions.
CREATE OR REPLACE FUNCTION cancel_flow(p_flow bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- One that is not whole never runs: others may have its key.
    UPDATE flows f
       SET cancelled = true, attend_at = '-infinity', retry_rank = NULL,
           holds_key = f.holds_key AND NOT f.sealed
     WHERE f.number = p_flow;
    PERFORM spread_parts(p_flow, ARRAY(SELECT p.number FROM parts p WHERE p.flow = p_flow), p_now);
END $$;

-- Jobs of a part end unclaimed. The caller has locked them, and counts them. In a lane nothing is
-- changed: it finds out when it is visited.
CREATE OR REPLACE FUNCTION end_members(
    p_seqs bigint[], p_state integer, p_ready integer, p_reason text, p_now timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_keys text[];
    v_holders bigint[];
BEGIN
    WITH ended AS (
        UPDATE jobs j
           SET state = p_state, ready = p_ready, lane = NULL, finished_at = p_now,
               reason = p_reason
         WHERE j.seq = ANY (p_seqs)
        RETURNING j.seq, j.key, j.key_window
    )
    SELECT array_agg(e.key), array_agg(e.seq) INTO v_keys, v_holders
      FROM ended e WHERE e.key_window <> 'for_a_time';
    IF v_keys IS NOT NULL THEN
        PERFORM free_keys(v_keys, v_holders);
    END IF;
END $$;

-- Cancel members of a cancelled flow that wait, and ask the workers of running ones. The caller has the
-- flow's lock. Returns how many.
CREATE OR REPLACE FUNCTION sweep_flow(p_flow bigint, p_limit integer, p_now timestamptz)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_parts bigint[] := ARRAY(SELECT p.id FROM parts p WHERE p.flow = p_flow AND p.kind = 0);
    v_free bigint[];
    v_found record;
    v_asked integer;
BEGIN
    v_free := ARRAY(SELECT c.part FROM part_counts c
                     WHERE c.part = ANY (v_parts) AND c.open > c.blocked
                     ORDER BY c.part FOR UPDATE SKIP LOCKED);
    SELECT array_agg(w.seq) AS seqs, array_agg(w.part) AS parts, count(*)::integer AS many
      INTO v_found
      FROM (SELECT j.seq, j.part FROM unnest(v_free) AS p (id)
             CROSS JOIN LATERAL (
                   SELECT j.seq, j.part FROM jobs j
                    WHERE j.part = p.id AND j.ready BETWEEN 0 AND 3
                    ORDER BY j.part, j.ready, j.seq FOR UPDATE SKIP LOCKED) AS j
             LIMIT p_limit) AS w;
    IF v_found.many > 0 THEN
        PERFORM end_members(v_found.seqs, 4, NULL, NULL, p_now);
        PERFORM count_members(p_now, v_found.parts, array_fill(0, ARRAY[v_found.many]),
                              array_fill(4, ARRAY[v_found.many]), true);
    END IF;
    -- By the index of what runs (+ 0): no more run than there are slots in all workers.
    UPDATE jobs j SET cancel_requested = true
     WHERE j.seq = ANY (ARRAY(SELECT r.seq FROM jobs r
                               WHERE r.state = 1 AND r.part + 0 = ANY (v_parts)
                                 AND NOT r.cancel_requested
                                 FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_asked = ROW_COUNT;
    IF NOT EXISTS (SELECT 1 FROM jobs r WHERE r.state = 1 AND r.part + 0 = ANY (v_parts)
                                          AND NOT r.cancel_requested)
       AND NOT EXISTS (SELECT 1 FROM unnest(v_parts) AS p (id), jobs j
                        WHERE j.part = p.id AND j.ready BETWEEN 0 AND 3) THEN
        UPDATE flows f SET attend_at = NULL WHERE f.number = p_flow;
    END IF;
    RETURN v_found.many + v_asked;
END $$;

-- Flows that settling is to look at: those past their expiry are cancelled, and members of cancelled ones
-- reached. Returns how many members.
CREATE OR REPLACE FUNCTION attend_flows(p_limit integer, p_now timestamptz) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_flow record;
    v_met bigint[] := '{}';
    v_done integer := 0;
BEGIN
    WHILE v_done < p_limit AND cardinality(v_met) < p_limit LOOP
        SELECT f.number, f.cancelled INTO v_flow FROM flows f
         WHERE f.attend_at <= p_now AND f.number <> ALL (v_met)
         ORDER BY f.attend_at LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        v_met := v_met || v_flow.number;
        IF NOT v_flow.cancelled THEN
            PERFORM cancel_flow(v_flow.number, p_now);
            v_done := v_done + 1;
        END IF;
        v_done := v_done + sweep_flow(v_flow.number, p_limit - v_done, p_now);
    END LOOP;
    RETURN v_done;
END $$;

-- Why the blocked jobs of a part are stopped.
CREATE OR REPLACE FUNCTION stop_reason(p_part bigint, p_cancelled boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_name text;
BEGIN
    IF p_cancelled THEN
        RETURN 'its flow was cancelled';
    END IF;
    SELECT b.name INTO v_name
      FROM parts p CROSS JOIN unnest(p.after, p.strict) WITH ORDINALITY AS e (number, strict, n)
      JOIN parts b ON b.flow = p.flow AND b.number = e.number
     WHERE p.id = p_part AND e.strict AND b.told_broken
     ORDER BY e.n LIMIT 1;
    RETURN coalesce('after ' || v_name || ', which failed', 'what it waits for failed');
END $$;

-- Take the keys of members that are to be blocked again, as far as nobody else has them. A key that is
-- under decision in an open transaction is not waited for: its job is left.
--   seqs, holders   the jobs, and beside them the ids of those that hold their keys (NULL: taken)
CREATE OR REPLACE FUNCTION take_member_keys(
    p_seqs bigint[], p_now timestamptz, OUT seqs bigint[], OUT holders uuid[]
)
LANGUAGE plpgsql SET lock_timeout TO '20ms' AS $$
DECLARE
    v_job record;
    v_holder bigint;
BEGIN
    seqs := '{}';
    holders := '{}';
    FOR v_job IN
        SELECT j.seq, j.key, j.key_period FROM jobs j WHERE j.seq = ANY (p_seqs)
         ORDER BY j.key, j.seq
    LOOP
        BEGIN
            v_holder := NULL;
            IF v_job.key IS NOT NULL THEN
                v_holder := take_key(
                    v_job.key, v_job.seq, after(p_now, v_job.key_period), p_now);
            END IF;
            seqs := seqs || v_job.seq;
            holders := holders || (SELECT h.id FROM jobs h WHERE h.seq = v_holder);
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END LOOP;
END $$;

-- Block stopped jobs of a part again, and skipped ones (p_skipped). One whose key was taken meanwhile stays as it
-- is, and counts as a failure. The caller has locked the flow and the part. Returns how many.
CREATE OR REPLACE FUNCTION block_again(
    p_part bigint, p_skipped boolean, p_limit integer, p_now timestamptz
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_back record;
    v_keys record;
BEGIN
    SELECT array_agg(b.seq) AS seqs, bool_or(b.key IS NOT NULL) AS keyed INTO v_back
      FROM (SELECT j.seq, j.key FROM jobs j
             WHERE j.part = p_part AND j.ready BETWEEN 5 AND 5 + p_skipped::integer
             ORDER BY j.part, j.ready, j.seq LIMIT p_limit FOR UPDATE SKIP LOCKED) AS b;
    IF v_back.seqs IS NULL THEN
        RETURN 0;
    END IF;
    IF v_back.keyed THEN
        SELECT k.* INTO v_keys FROM take_member_keys(v_back.seqs, p_now) AS k;
    ELSE
        SELECT v_back.seqs AS seqs, array_fill(NULL::uuid, ARRAY[cardinality(v_back.seqs)]) AS holders
          INTO v_keys;
    END IF;
    IF v_keys.seqs = '{}' THEN
        RETURN 0;
    END IF;
    SELECT array_agg(j.ready::integer) AS was, array_agg(CASE WHEN t.holder IS NULL THEN 1 ELSE 4 END)
           AS now_is
      INTO v_back
      FROM unnest(v_keys.seqs, v_keys.holders) AS t (seq, holder) JOIN jobs j ON j.seq = t.seq;
    UPDATE jobs j
       SET state = CASE WHEN t.holder IS NULL THEN 0 ELSE j.state END,
           ready = CASE WHEN t.holder IS NULL THEN 4 END,
           finished_at = CASE WHEN t.holder IS NOT NULL THEN j.finished_at END,
           reason = 'its key is held by job ' || encode(uuid_send(t.holder), 'hex')
      FROM unnest(v_keys.seqs, v_keys.holders) AS t (seq, holder)
     WHERE j.seq = t.seq;
    PERFORM count_members(
        p_now, array_fill(p_part, ARRAY[cardinality(v_keys.seqs)]), v_back.was, v_back.now_is, true);
    RETURN cardinality(v_keys.seqs);
END $$;

-- Do what the part's numbers say with up to p_limit of its jobs. The caller has locked the flow and the
-- part. Returns how many; where it is none, the part may be due no more, or others have its jobs.
CREATE OR REPLACE FUNCTION settle_part(p_part bigint, p_limit integer, p_now timestamptz)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_part record;
    v_seqs bigint[];
    v_many integer;
BEGIN
    SELECT f.cancelled, f.created_at AS started, c.blocked, c.stopped, c.skipped,
           decide_part(p.kind, p.failed, p.waiting, p.broken, p.unneeded, f.cancelled) AS decision
      INTO v_part
      FROM parts p JOIN flows f ON f.number = p.flow JOIN part_counts c ON c.part = p.id
     WHERE p.id = p_part;
    IF NOT is_part_due(v_part.decision, v_part.blocked, v_part.stopped, v_part.skipped) THEN
        UPDATE parts p SET due = false WHERE p.id = p_part;
        RETURN 0;
    END IF;
    IF is_part_due(v_part.decision, 0, v_part.stopped, v_part.skipped) THEN
        RETURN block_again(p_part, v_part.decision <> 3, p_limit, p_now);
    END IF;
    IF v_part.decision = 1 THEN
        v_many := cardinality(
            place_blocked(p_part, v_part.started, least(p_limit, v_part.blocked), p_now));
        UPDATE part_counts c SET blocked = c.blocked - v_many WHERE c.part = p_part;
        IF v_many = v_part.blocked THEN
            UPDATE parts p SET due = false WHERE p.id = p_part;
        END IF;
        RETURN v_many;
    END IF;
    -- BETWEEN: not by the index of all blocked jobs.
    v_seqs := ARRAY(SELECT j.seq FROM jobs j WHERE j.part = p_part AND j.ready BETWEEN 4 AND 4
                     ORDER BY j.part, j.ready, j.seq LIMIT p_limit FOR UPDATE SKIP LOCKED);
    v_many := cardinality(v_seqs);
    IF v_many = 0 THEN
        RETURN 0;
    END IF;
    PERFORM end_members(
        v_seqs, 2 + v_part.decision, 3 + v_part.decision,
        CASE v_part.decision WHEN 2 THEN stop_reason(p_part, v_part.cancelled)
                             ELSE 'not needed' END, p_now);
    PERFORM count_members(
        p_now, array_fill(p_part, ARRAY[v_many]), array_fill(1, ARRAY[v_many]),
        array_fill(3 + v_part.decision, ARRAY[v_many]), true);
    IF v_many = v_part.blocked THEN
        UPDATE parts p SET due = false WHERE p.id = p_part;
    END IF;
    RETURN v_many;
END $$;

-- Whether there is something to settle: three looks into indexes that are nearly always empty.
CREATE OR REPLACE FUNCTION has_due_parts(p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM parts p WHERE p.due)
        OR EXISTS (SELECT 1 FROM flows f WHERE f.attend_at <= p_now)
        OR EXISTS (SELECT 1 FROM member_ends);
END $$;

-- `FlowStore.settle`, in a transaction that may hold any rows by now. p_now: the store's.
CREATE OR REPLACE FUNCTION settle_some(p_limit integer, p_now timestamptz) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_done integer := 0;
    v_some integer;
    v_part record;
    v_met bigint[] := '{}';
BEGIN
    IF EXISTS (SELECT 1 FROM member_ends) THEN
        PERFORM fold_ends(p_now);
    END IF;
    IF EXISTS (SELECT 1 FROM flows f WHERE f.attend_at <= p_now) THEN
        v_done := attend_flows(p_limit, p_now);
    END IF;
    WHILE v_done < p_limit LOOP
        SELECT p.id, p.flow INTO v_part FROM parts p
         WHERE p.due AND p.flow <> ALL (v_met) ORDER BY p.flow, p.rank LIMIT 1;
        EXIT WHEN NOT FOUND;
        v_some := 0;
        PERFORM 1 FROM flows f WHERE f.number = v_part.flow FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM 1 FROM part_counts c WHERE c.part = v_part.id FOR UPDATE SKIP LOCKED;
            -- Jobs whose joining is noted only are not counted yet.
            IF FOUND AND NOT EXISTS (SELECT 1 FROM member_ends m WHERE m.part = v_part.id) THEN
                v_some := settle_part(v_part.id, p_limit - v_done, p_now);
            END IF;
        END IF;
        IF v_some = 0 THEN
            -- Later parts of the flow must not pass it: it may block them again.
            v_met := v_met || v_part.flow;
        END IF;
        v_done := v_done + v_some;
    END LOOP;
    RETURN v_done;
END $$;

-- Let a retried flow run from this write on: block at least one of its members again. None is if others
-- hold the keys of all of them. The caller has locked the flow.
CREATE OR REPLACE FUNCTION reopen_flow(p_flow bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_part bigint;
    v_met bigint[] := '{}';
    v_some integer;
BEGIN
    LOOP
        SELECT p.id INTO v_part FROM flows f JOIN parts p ON p.flow = f.number
         WHERE f.number = p_flow AND f.state > 0 AND p.due AND p.id <> ALL (v_met)
         ORDER BY p.rank LIMIT 1;
        EXIT WHEN NOT FOUND;
        v_some := 0;
        PERFORM 1 FROM part_counts c WHERE c.part = v_part FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            v_some := settle_part(v_part, 100, p_now);
        END IF;
        IF v_some = 0 THEN
            v_met := v_met || v_part;
        END IF;
    END LOOP;
END $$;

-- Requeue a member, whose row the caller has locked; whether it is back. A key that is under decision in an
-- open transaction is not waited for: NULL.
CREATE OR REPLACE FUNCTION retry_member(p_seq bigint, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout TO '20ms' AS $$
BEGIN
    RETURN requeue_one(p_seq, p_now) IS NULL;
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END $$;

-- Requeue the ended members among the next p_limit of one part of a retried flow, whose lock the caller has.
-- Rows and keys that others have are not waited for: the portion ends before them.
--   met, reached   how many it has looked at, and the last of them; is_left: it is to be continued
CREATE OR REPLACE FUNCTION retry_portion(
    p_part bigint, p_after bigint, p_limit integer, p_now timestamptz,
    OUT met integer, OUT reached bigint, OUT is_left boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_job record;
    v_locked bigint[];
    v_back bigint[] := '{}';
    v_was integer[] := '{}';
    v_is_back boolean;
BEGIN
    met := 0;
    reached := p_after;
    is_left := true;
    PERFORM 1 FROM part_counts c WHERE c.part = p_part FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR EXISTS (SELECT 1 FROM member_ends m WHERE m.part = p_part) THEN
        RETURN;
    END IF;
    v_locked := ARRAY(
        SELECT j.seq FROM jobs j
         WHERE j.seq = ANY (ARRAY(SELECT e.seq FROM jobs e
                                   WHERE e.part = p_part AND e.ready IS NULL AND e.seq > p_after
                                   ORDER BY e.part, e.ready, e.seq LIMIT p_limit))
           AND j.state BETWEEN 3 AND 5
           FOR UPDATE SKIP LOCKED);
    is_left := false;
    FOR v_job IN
        SELECT j.seq, j.state, j.key FROM jobs j
         WHERE j.part = p_part AND j.ready IS NULL AND j.seq > p_after
         ORDER BY j.part, j.ready, j.seq LIMIT p_limit
    LOOP
        IF v_job.state BETWEEN 3 AND 5 THEN
            v_is_back := NULL;
            IF v_job.seq = ANY (v_locked) THEN
                IF v_job.key IS NULL THEN
                    v_is_back := requeue_one(v_job.seq, p_now) IS NULL;
                ELSE
                    v_is_back := retry_member(v_job.seq, p_now);
                END IF;
            END IF;
            IF v_is_back IS NULL THEN
                is_left := true;
                EXIT;
            ELSIF v_is_back THEN
                v_back := v_back || v_job.seq;
                v_was := v_was || least(v_job.state, 4)::integer;
            END IF;
        END IF;
        met := met + 1;
        reached := v_job.seq;
    END LOOP;
    is_left := is_left OR met = p_limit;
    IF v_back <> '{}' THEN
        PERFORM count_members(
            p_now, array_fill(p_part, ARRAY[cardinality(v_back)]), v_was,
            ARRAY(SELECT (j.ready = 4)::integer FROM unnest(v_back) WITH ORDINALITY AS t (seq, n)
                    JOIN jobs j ON j.seq = t.seq ORDER BY t.n), true);
    END IF;
END $$;

-- Continue the retry of a flow, whose lock the caller has, by up to p_limit members. Returns how many it met.
CREATE OR REPLACE FUNCTION continue_retry(p_flow bigint, p_limit integer, p_now timestamptz)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_at record;
    v_part record;
    v_some record;
    v_met integer := 0;
BEGIN
    SELECT f.retry_rank AS rank, f.retry_seq AS seq INTO v_at FROM flows f WHERE f.number = p_flow;
    WHILE v_met < p_limit LOOP
        SELECT p.id, p.number, p.rank INTO v_part FROM parts p
         WHERE p.flow = p_flow AND p.rank >= v_at.rank AND p.kind = 0
         ORDER BY p.rank LIMIT 1;
        IF NOT FOUND THEN
            UPDATE flows f SET retry_rank = NULL WHERE f.number = p_flow;
            PERFORM reopen_flow(p_flow, p_now);
            RETURN greatest(v_met, 1);
        END IF;
        IF v_part.rank > v_at.rank THEN
            v_at.seq := 0;
        END IF;
        SELECT r.* INTO v_some FROM retry_portion(v_part.id, v_at.seq, p_limit - v_met, p_now) AS r;
        v_met := v_met + v_some.met;
        IF v_some.is_left THEN
            UPDATE flows f SET retry_rank = v_part.rank, retry_seq = v_some.reached
             WHERE f.number = p_flow;
            RETURN v_met;
        END IF;
        v_at.rank := v_part.rank + 1;
        v_at.seq := 0;
        UPDATE flows f SET retry_rank = v_at.rank, retry_seq = 0 WHERE f.number = p_flow;
        PERFORM spread_parts(p_flow, ARRAY[v_part.number], p_now);
    END LOOP;
    RETURN v_met;
END $$;

-- The same of all flows that are being retried.
CREATE OR REPLACE FUNCTION continue_retries(p_limit integer, p_now timestamptz) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_flow bigint;
    v_met bigint[] := '{}';
    v_done integer := 0;
BEGIN
    WHILE v_done < p_limit LOOP
        SELECT f.number INTO v_flow FROM flows f
         WHERE f.retry_rank IS NOT NULL AND f.number <> ALL (v_met)
         ORDER BY f.number LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        v_met := v_met || v_flow;
        v_done := v_done + continue_retry(v_flow, p_limit - v_done, p_now);
    END LOOP;
    RETURN v_done;
END $$;

-- `FlowStore.settle`.
CREATE OR REPLACE FUNCTION settle_flows(p_at timestamptz, p_durable boolean, p_limit integer)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_done integer;
BEGIN
    PERFORM commit_durably(p_durable);
    v_done := settle_some(p_limit, v_now);
    IF v_done < p_limit AND EXISTS (SELECT 1 FROM flows f WHERE f.retry_rank IS NOT NULL) THEN
        v_done := v_done + continue_retries(p_limit - v_done, v_now);
    END IF;
    RETURN v_done;
END $$;
