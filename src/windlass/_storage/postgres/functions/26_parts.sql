-- The parts of flows: their rules, and how the end of a member travels through the graph. The rules
-- are those of _core/flows/part.py.

-- What becomes of blocked jobs: 0 they wait, 1 open, 2 stop, 3 skip.
CREATE OR REPLACE FUNCTION decide_part(
    p_kind smallint, p_failed boolean, p_waiting integer, p_broken integer, p_unneeded integer,
    p_cancelled boolean
) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_kind IN (0, 1, 4) AND (p_cancelled OR (p_broken > 0 AND NOT p_failed)) THEN 2
        WHEN p_waiting > 0 THEN 0
        WHEN p_failed THEN CASE WHEN p_broken > 0 AND NOT p_cancelled THEN 1 ELSE 3 END
        WHEN p_broken > 0 THEN CASE WHEN p_kind = 3 THEN 3 ELSE 2 END
        WHEN p_unneeded > 0 AND p_kind NOT IN (2, 4) THEN 3
        ELSE 1 END
$$;

-- Where a part stands in the order of the graph. p_first: of an added flow, the number of its first part.
CREATE OR REPLACE FUNCTION part_rank(p_kind smallint, p_number integer, p_first integer)
RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_kind IN (2, 3) THEN (1::bigint << 60) + p_number
                ELSE p_number - p_first * (1::bigint << 21) END
$$;

-- Whether jobs of a part are to be placed, ended or blocked again. Stopped ones come back to be skipped, too:
-- they count as failures, and nothing failed.
CREATE OR REPLACE FUNCTION is_part_due(
    p_decision integer, p_blocked integer, p_stopped integer, p_skipped integer
) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT (p_blocked > 0 AND p_decision <> 0) OR (p_stopped > 0 AND p_decision <> 2)
        OR (p_skipped > 0 AND p_decision < 2)
$$;

-- A flow that runs again holds its key again, unless another one does by now. The wait is short: the
-- caller holds the flow's lock.
CREATE OR REPLACE FUNCTION hold_flow_key(p_flow bigint) RETURNS void
LANGUAGE plpgsql SET lock_timeout TO '50ms' AS $$
BEGIN
    UPDATE flows f SET holds_key = true
     WHERE f.number = p_flow AND f.key IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM flows o WHERE o.key = f.key AND o.holds_key);
EXCEPTION WHEN unique_violation OR lock_not_available THEN
    NULL;
END $$;

-- The end of a flow has been reached, or is not any more.
CREATE OR REPLACE FUNCTION end_flow(
    p_flow bigint, p_over boolean, p_broken boolean, p_now timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_over THEN
        UPDATE flows f
           SET state = CASE WHEN NOT p_broken THEN 1 WHEN f.cancelled THEN 3 ELSE 2 END,
               ended_at = p_now, holds_key = false, attend_at = NULL
         WHERE f.number = p_flow;
    ELSE
        -- It has all its time again.
        UPDATE flows f
           SET state = 0, ended_at = NULL, expires_at = after(p_now, f.expires),
               attend_at = CASE WHEN f.cancelled THEN '-infinity' ELSE after(p_now, f.expires) END
         WHERE f.number = p_flow AND f.state > 0;
        PERFORM hold_flow_key(p_flow);
    END IF;
END $$;

-- These parts of a flow in the order of the graph.
CREATE OR REPLACE FUNCTION in_rank_order(p_flow bigint, p_numbers integer[]) RETURNS integer[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT p.number FROM parts p
                  WHERE p.flow = p_flow AND p.number = ANY (p_numbers) ORDER BY p.rank);
END $$;

-- Pass on what has changed at parts of a flow, whose lock the caller has. Parts without jobs pass it on
-- themselves; parts that are due now are marked. Ranks rise along edges, and numbers in a flow that has not
-- grown: each part is met once. Nothing happens in a sealed flow.
CREATE OR REPLACE FUNCTION spread_parts(p_flow bigint, p_numbers integer[], p_now timestamptz)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_cancelled boolean;
    v_sealed boolean;
    v_grown boolean;
    v_retry bigint;
    v_at integer := 1;
    v_work integer[] := ARRAY(SELECT DISTINCT n FROM unnest(p_numbers) AS n ORDER BY n);
    v_touched integer[] := p_numbers;
    v_empty integer[];
    v_part record;
BEGIN
    SELECT f.cancelled, f.sealed, f.grown, f.retry_rank
      INTO v_cancelled, v_sealed, v_grown, v_retry
      FROM flows f WHERE f.number = p_flow;
    IF v_sealed AND NOT v_cancelled THEN
        RETURN;
    END IF;
    IF v_grown THEN
        v_work := in_rank_order(p_flow, v_work);
    END IF;
    WHILE v_at <= cardinality(v_work) LOOP
        -- A part without jobs tells a failure at once, its end only when nothing is open.
        -- One whose jobs a retry has not all reached has not ended.
        SELECT s.*,
               CASE WHEN s.total = 0 THEN s.waiting = 0
                    ELSE s.open = 0 AND NOT s.returning END AND s.adding = 0 AS over,
               CASE WHEN s.total = 0 THEN s.decision = 2 ELSE s.failures > 0 END
               OR s.added_broken > 0 AS broken,
               CASE WHEN s.total = 0 THEN s.decision = 3
                    ELSE s.open = 0 AND NOT s.returning AND s.skipped = s.total END AS unneeded
          INTO v_part
          FROM (SELECT p.id, p.kind, p.feeds, p.feeds_strict, p.told_over,
                       p.told_broken, p.told_unneeded, p.waiting, p.adding, p.added_broken,
                       p.counts_for,
                       p.kind = 0 AND coalesce(p.rank >= v_retry, false) AS returning,
                       decide_part(p.kind, p.failed, p.waiting, p.broken, p.unneeded,
                                   v_cancelled) AS decision,
                       c.total, c.open, c.skipped, c.failed + c.cancelled + c.stopped AS failures
                  FROM parts p JOIN part_counts c ON c.part = p.id
                 WHERE p.flow = p_flow AND p.number = v_work[v_at]) AS s;
        v_at := v_at + 1;
        CONTINUE WHEN (v_part.over, v_part.broken, v_part.unneeded)
                    = (v_part.told_over, v_part.told_broken, v_part.told_unneeded);
        UPDATE parts p
           SET told_over = v_part.over, told_broken = v_part.broken,
               told_unneeded = v_part.unneeded
         WHERE p.id = v_part.id;
        -- An array, not a join: a plan from when there were few parts would read all of the flow's.
        WITH learnt AS (
            UPDATE parts p
               SET waiting = p.waiting - (v_part.over::integer - v_part.told_over::integer),
                   broken = p.broken
                       + v_part.feeds_strict[array_position(v_part.feeds, p.number)]::integer
                         * (v_part.broken::integer - v_part.told_broken::integer),
                   unneeded = p.unneeded
                       + v_part.feeds_strict[array_position(v_part.feeds, p.number)]::integer
                         * (v_part.unneeded::integer - v_part.told_unneeded::integer)
             WHERE p.flow = p_flow AND p.number = ANY (v_part.feeds)
            RETURNING p.id, p.number
        )
        SELECT array_agg(l.number) INTO v_empty FROM learnt l
         WHERE l.number <> ALL (v_work)
           AND (SELECT c.total FROM part_counts c WHERE c.part = l.id) = 0;
        v_touched := v_touched || v_part.feeds;
        IF v_part.counts_for IS NOT NULL THEN
            UPDATE parts p
               SET adding = p.adding - (v_part.over::integer - v_part.told_over::integer),
                   added_broken = p.added_broken
                       + (v_part.broken::integer - v_part.told_broken::integer)
             WHERE p.flow = p_flow AND p.number = v_part.counts_for;
            IF v_part.counts_for <> ALL (v_work[v_at :]) THEN
                v_empty := v_empty || v_part.counts_for;
            END IF;
        END IF;
        IF v_empty IS NOT NULL THEN
            v_work := ARRAY(SELECT n FROM unnest(v_work[v_at :] || v_empty) AS n ORDER BY n);
            v_at := 1;
            IF v_grown THEN
                v_work := in_rank_order(p_flow, v_work);
            END IF;
        END IF;
        IF v_part.kind = 2 THEN
            PERFORM end_flow(p_flow, v_part.over, v_part.broken, p_now);
        END IF;
    END LOOP;
    UPDATE parts p SET due = NOT p.due
      FROM part_counts c
     WHERE p.flow = p_flow AND p.number = ANY (v_touched) AND c.part = p.id AND c.total > 0
       AND p.due <> is_part_due(
               decide_part(p.kind, p.failed, p.waiting, p.broken, p.unneeded, v_cancelled),
               c.blocked, c.stopped, c.skipped);
END $$;

-- Parts have something new to tell, or flows that are to join theirs: lock their flows, and pass it on.
CREATE OR REPLACE FUNCTION tell_parts(p_parts bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_flow record;
BEGIN
    PERFORM 1 FROM flows f
      WHERE f.number = ANY (ARRAY(SELECT p.flow FROM parts p WHERE p.id = ANY (p_parts)))
      ORDER BY f.number FOR UPDATE;
    IF EXISTS (SELECT 1 FROM added_flows a WHERE a.part = ANY (p_parts)) THEN
        p_parts := p_parts || join_added_flows(p_parts, p_now);
    END IF;
    FOR v_flow IN
        SELECT p.flow, array_agg(p.number) AS numbers FROM parts p WHERE p.id = ANY (p_parts)
         GROUP BY p.flow ORDER BY p.flow
    LOOP
        PERFORM spread_parts(v_flow.flow, v_flow.numbers, p_now);
        -- What came into a flow that was cancelled meanwhile is reached, too.
        UPDATE flows f SET attend_at = '-infinity'
         WHERE f.number = v_flow.flow AND f.cancelled AND f.state = 0
           AND f.attend_at IS DISTINCT FROM '-infinity';
    END LOOP;
END $$;

-- Count members that ended, came back, were placed or joined: arrays side by side, one entry per job,
-- the same part as often as it has jobs here. NULL as the part: no member.
--   p_was, p_now_is   0 open, 1 blocked, 2 succeeded, 3 failed, 4 cancelled, 5 stopped, 6 skipped;
--                     p_was NULL: it joins
-- One write per part. Where that changes what a part tells, or a flow is to join, the flow is locked, and
-- learns it.
--   p_skip   wait for no row: the answer is the parts that another transaction has, uncounted
-- A transaction that waits here does so once, after all its other rows: see 05_locks.sql.
CREATE OR REPLACE FUNCTION count_members(
    p_now timestamptz, p_parts bigint[], p_was integer[], p_now_is integer[],
    p_skip boolean DEFAULT false
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_delta record;
    v_parts bigint[];
    v_left bigint[] := '{}';
    v_tell bigint[];
    v_flows bigint[];
    v_noted record;
BEGIN
    IF NOT p_skip AND 1 <= ANY (p_was) THEN
        -- What these jobs were may be noted only (`member_ends`): it is counted together with this.
        PERFORM 1 FROM part_counts c WHERE c.part = ANY (p_parts) ORDER BY c.part FOR UPDATE;
        WITH noted AS (
            DELETE FROM member_ends m WHERE m.part = ANY (p_parts) RETURNING m.part, m.was, m.now
        )
        SELECT array_agg(n.part) AS parts, array_agg(n.was::integer) AS was,
               array_agg(n.now::integer) AS now_is
          INTO v_noted FROM noted n;
        p_parts := p_parts || v_noted.parts;
        p_was := p_was || v_noted.was;
        p_now_is := p_now_is || v_noted.now_is;
    END IF;
    SELECT array_agg(d.part) AS parts, array_agg(d.total) AS total, array_agg(d.open) AS open,
           array_agg(d.blocked) AS blocked, array_agg(d.succeeded) AS succeeded,
           array_agg(d.failed) AS failed, array_agg(d.cancelled) AS cancelled,
           array_agg(d.stopped) AS stopped, array_agg(d.skipped) AS skipped
      INTO v_delta
      FROM (SELECT t.part, count(*) FILTER (WHERE t.was IS NULL)::integer AS total,
                   (count(*) FILTER (WHERE t.is_now < 2)
                    - count(*) FILTER (WHERE t.was < 2))::integer AS open,
                   (count(*) FILTER (WHERE t.is_now = 1)
                    - count(*) FILTER (WHERE t.was = 1))::integer AS blocked,
                   (count(*) FILTER (WHERE t.is_now = 2)
                    - count(*) FILTER (WHERE t.was = 2))::integer AS succeeded,
                   (count(*) FILTER (WHERE t.is_now = 3)
                    - count(*) FILTER (WHERE t.was = 3))::integer AS failed,
                   (count(*) FILTER (WHERE t.is_now = 4)
                    - count(*) FILTER (WHERE t.was = 4))::integer AS cancelled,
                   (count(*) FILTER (WHERE t.is_now = 5)
                    - count(*) FILTER (WHERE t.was = 5))::integer AS stopped,
                   (count(*) FILTER (WHERE t.is_now = 6)
                    - count(*) FILTER (WHERE t.was = 6))::integer AS skipped
              FROM unnest(p_parts, p_was, p_now_is) AS t (part, was, is_now)
             WHERE t.part IS NOT NULL
             GROUP BY t.part ORDER BY t.part) AS d;
    v_parts := v_delta.parts;
    IF v_parts IS NULL THEN
        RETURN v_left;
    END IF;
    IF p_skip THEN
        v_parts := ARRAY(SELECT c.part FROM part_counts c WHERE c.part = ANY (v_parts)
                          ORDER BY c.part FOR UPDATE SKIP LOCKED);
        -- The flows that will learn something: those that another transaction has are left.
        v_flows := ARRAY(
            SELECT DISTINCT p.flow
              FROM unnest(v_delta.parts, v_delta.total, v_delta.open, v_delta.blocked,
                          v_delta.failed, v_delta.cancelled, v_delta.stopped, v_delta.skipped)
                   AS d (part, total, open, blocked, failed, cancelled, stopped, skipped)
              JOIN part_counts c ON c.part = d.part
              JOIN parts p ON p.id = d.part
             WHERE d.part = ANY (v_parts)
               AND (d.total > 0 OR d.open > 0 OR d.blocked > 0
                    OR EXISTS (SELECT 1 FROM added_flows a WHERE a.part = d.part)
                    OR (c.open = 0) <> (c.open + d.open = 0)
                    OR (c.failed + c.cancelled + c.stopped > 0)
                       <> (c.failed + c.cancelled + c.stopped
                           + d.failed + d.cancelled + d.stopped > 0)
                    OR (c.open = 0 AND c.skipped = c.total)
                       <> (c.open + d.open = 0 AND c.skipped + d.skipped = c.total)));
        IF v_flows <> '{}' THEN
            v_flows := ARRAY(
                SELECT n FROM unnest(v_flows) AS n
                EXCEPT
                SELECT l.number FROM (SELECT f.number FROM flows f WHERE f.number = ANY (v_flows)
                                       ORDER BY f.number FOR UPDATE SKIP LOCKED) AS l);
            v_parts := ARRAY(SELECT p.id FROM parts p
                              WHERE p.id = ANY (v_parts) AND p.flow <> ALL (v_flows));
        END IF;
        v_left := ARRAY(SELECT p FROM unnest(v_delta.parts) AS p WHERE p <> ALL (v_parts));
    ELSIF cardinality(v_parts) > 1 THEN
        PERFORM 1 FROM part_counts c WHERE c.part = ANY (v_parts) ORDER BY c.part FOR UPDATE;
    END IF;
    WITH counted AS (
        UPDATE part_counts c
           SET total = c.total + d.total, open = c.open + d.open, blocked = c.blocked + d.blocked,
               succeeded = c.succeeded + d.succeeded, failed = c.failed + d.failed,
               cancelled = c.cancelled + d.cancelled, stopped = c.stopped + d.stopped,
               skipped = c.skipped + d.skipped
          FROM unnest(v_delta.parts, v_delta.total, v_delta.open, v_delta.blocked,
                      v_delta.succeeded, v_delta.failed, v_delta.cancelled, v_delta.stopped,
                      v_delta.skipped)
               AS d (part, total, open, blocked, succeeded, failed, cancelled, stopped, skipped)
         WHERE c.part = d.part AND d.part = ANY (v_parts)
        RETURNING c.part, d.total > 0 OR d.open > 0 OR d.blocked > 0
                  OR EXISTS (SELECT 1 FROM added_flows a WHERE a.part = c.part)
                  OR (c.open = 0) <> (c.open - d.open = 0)
                  OR (c.failed + c.cancelled + c.stopped > 0)
                     <> (c.failed + c.cancelled + c.stopped
                         - d.failed - d.cancelled - d.stopped > 0)
                  OR (c.open = 0 AND c.skipped = c.total)
                     <> (c.open - d.open = 0 AND c.skipped - d.skipped = c.total) AS tells
    )
    SELECT array_agg(c.part) INTO v_tell FROM counted c WHERE c.tells;
    IF v_tell IS NULL THEN
        RETURN v_left;
    END IF;
    PERFORM tell_parts(v_tell, p_now);
    RETURN v_left;
END $$;

-- Place up to p_limit blocked jobs of a part that is open: in the order of the flow's start, unless an
-- instant or a delay was asked for. One that has run before is not delayed again. Those with limits are left
-- to the next claim to put into their lanes. The caller has locked the flow and the counts of the part, and
-- counts them. Returns the jobs. They are as open as before: the part has nothing to tell.
CREATE OR REPLACE FUNCTION place_blocked(
    p_part bigint, p_started timestamptz, p_limit integer, p_now timestamptz
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_seqs bigint[];
BEGIN
    WITH placed AS (
        UPDATE jobs j
           SET due = CASE WHEN j.attempt > 0 OR (j.delay IS NULL AND j.due = j.created_at)
                          THEN p_started ELSE coalesce(after(p_now, j.delay), j.due) END,
               ready = CASE WHEN j.gates IS NULL
                                 AND (j.attempt > 0
                                      OR coalesce(after(p_now, j.delay), j.due) <= p_now)
                            THEN 1 ELSE 0 END,
               expires_at = after(p_now, j.expires)
         -- BETWEEN: not by the index of all blocked jobs.
         WHERE j.seq = ANY (ARRAY(SELECT b.seq FROM jobs b
                                   WHERE b.part = p_part AND b.ready BETWEEN 4 AND 4
                                   ORDER BY b.part, b.ready, b.seq LIMIT p_limit
                                     FOR UPDATE SKIP LOCKED))
        RETURNING j.seq
    )
    SELECT coalesce(array_agg(p.seq), '{}') INTO v_seqs FROM placed p;
    RETURN v_seqs;
END $$;

-- Let the parts that wait for p_part know that all of its jobs have succeeded. Where that opens one part with
-- jobs, 100 at most, they are placed at once. The answer: those; NULL: there is more to tell, nothing was
-- done, and `tell_parts` is to be called. The caller has locked the counts of p_part.
CREATE OR REPLACE FUNCTION open_next(p_part bigint, p_now timestamptz) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_flow bigint;
    v_started timestamptz;
    v_told boolean;
    v_numbers integer[];
    v_next bigint;
    v_blocked integer;
    v_seqs bigint[] := '{}';
BEGIN
    SELECT f.number, f.created_at INTO v_flow, v_started FROM flows f
     WHERE f.number = (SELECT p.flow FROM parts p WHERE p.id = p_part)
       AND NOT f.cancelled AND NOT f.sealed AND f.retry_rank IS NULL
       FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- One that still waits for others decides, and tells, what it did before.
    WITH learnt AS (
        UPDATE parts p
           SET told_over = p.told_over OR p.id = p_part,
               waiting = p.waiting - (p.id <> p_part)::integer
         WHERE p.flow = v_flow
           AND p.number = ANY ((
                   SELECT x.feeds || x.number FROM parts x
                    WHERE x.id = p_part AND x.kind = 0 AND x.counts_for IS NULL
                      AND x.adding = 0 AND x.added_broken = 0
                      AND NOT x.told_over AND NOT x.told_broken AND NOT x.told_unneeded
                      AND NOT EXISTS (SELECT 1 FROM added_flows a WHERE a.part = p_part))::integer[])
        RETURNING p.id, p.number, p.id <> p_part AND p.waiting = 0 AS free,
                  p.kind = 0 AND NOT p.failed AND p.broken = 0 AND p.unneeded = 0 AND NOT p.due AS opens
    )
    SELECT count(*) > 0, array_agg(l.number) FILTER (WHERE l.free),
           CASE WHEN count(*) FILTER (WHERE l.free) = 1
                THEN min(l.id) FILTER (WHERE l.free AND l.opens) END
      INTO v_told, v_numbers, v_next FROM learnt l;
    IF NOT v_told THEN
        RETURN NULL;
    END IF;
    IF v_next IS NOT NULL THEN
        -- Jobs whose joining is noted only are not counted yet.
        UPDATE part_counts c SET blocked = 0
          FROM (SELECT n.part, n.blocked FROM part_counts n
                 WHERE n.part = v_next AND n.total > 0 AND n.blocked <= 100
                   AND n.stopped = 0 AND n.skipped = 0
                   AND NOT EXISTS (SELECT 1 FROM member_ends m WHERE m.part = n.part)
                   FOR UPDATE SKIP LOCKED) AS was
         WHERE c.part = was.part
        RETURNING was.blocked INTO v_blocked;
        IF v_blocked > 0 THEN
            v_seqs := place_blocked(v_next, v_started, v_blocked, p_now);
            IF cardinality(v_seqs) < v_blocked THEN
                -- Others have the rest.
                UPDATE part_counts c SET blocked = v_blocked - cardinality(v_seqs)
                 WHERE c.part = v_next;
            END IF;
        END IF;
    END IF;
    IF v_numbers IS NOT NULL AND (v_blocked IS NULL OR v_blocked > cardinality(v_seqs)) THEN
        PERFORM spread_parts(v_flow, v_numbers, p_now);
    END IF;
    RETURN v_seqs;
END $$;

-- Count ends that were left behind (`member_ends`). Waits for nothing.
CREATE OR REPLACE FUNCTION fold_ends(p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_ends record;
    v_left bigint[];
BEGIN
    SELECT array_agg(e.id) AS ids, array_agg(e.part) AS parts, array_agg(e.was::integer) AS was,
           array_agg(e.now::integer) AS now_is
      INTO v_ends
      FROM (SELECT m.* FROM member_ends m ORDER BY m.id LIMIT 1000 FOR UPDATE SKIP LOCKED) AS e;
    IF v_ends.ids IS NULL THEN
        RETURN;
    END IF;
    v_left := count_members(p_now, v_ends.parts, v_ends.was, v_ends.now_is, true);
    DELETE FROM member_ends m WHERE m.id = ANY (v_ends.ids) AND m.part <> ALL (v_left);
END $$;

-- Note members for `fold_ends`, where the caller must not wait for their parts.
CREATE OR REPLACE FUNCTION note_members(p_parts bigint[], p_was integer[], p_now_is integer[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO member_ends (part, was, now)
    SELECT t.part, t.was, t.is_now FROM unnest(p_parts, p_was, p_now_is) AS t (part, was, is_now)
     WHERE t.part IS NOT NULL;
END $$;

-- Which of these waiting jobs are members of cancelled flows: they must not start.
CREATE OR REPLACE FUNCTION members_cancelled(p_seqs bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM flows f WHERE f.cancelled AND f.state = 0) THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(SELECT j.seq FROM jobs j JOIN parts p ON p.id = j.part
                   JOIN flows f ON f.number = p.flow
                  WHERE j.seq = ANY (p_seqs) AND f.cancelled AND p.kind = 0);
END $$;
