-- Unique keys, and what happens to jobs while they wait: they fall due, or end unclaimed.

-- --- unique keys --------------------------------------------------------------------------------

-- Hold a key for a job, until an instant or (NULL) until it is freed. The answer: NULL, it is
-- held by this job now; else the seq of the job that holds it. Waits for a transaction that decides the
-- same key in an open transaction, as long as lock_timeout allows.
--
-- The unique index decides, never a look before. A hold whose time is up, or whose job is gone, is
-- none and is taken over.
CREATE OR REPLACE FUNCTION take_key(p_key text, p_seq bigint, p_until timestamptz, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql AS $$
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
-- be another job's. In the order of the keys, so that two of these never wait for each other.
-- A locked one is being taken over, perhaps in a transaction of the user's that stays open: its time
-- was up, and an expired hold need not be given up.
CREATE OR REPLACE FUNCTION free_keys(p_keys text[], p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_free record;
BEGIN
    FOR v_free IN SELECT t.key, t.seq FROM unnest(p_keys, p_seqs) AS t (key, seq)
                   ORDER BY t.key COLLATE "C"
    LOOP
        DELETE FROM keys WHERE ctid = ANY (ARRAY(
            SELECT k.ctid FROM keys k WHERE k.key = v_free.key AND k.seq = v_free.seq
               FOR UPDATE SKIP LOCKED));
    END LOOP;
END $$;

-- --- ready --------------------------------------------------------------------------------------

-- Waiting jobs that are marked "later" and are due take their place: the common line, their lane,
-- or the solo line. Those that are not due stay. Callers that may name a job with limits have
-- called `lock_limits` before they locked the rows. p_held: with these names; jobs that need others
-- stay as they are. NULL: with all that the jobs need.
CREATE OR REPLACE FUNCTION place_waiting(
    p_seqs bigint[], p_now timestamptz, p_held text[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_jobs record;
    v_lanes record;
BEGIN
    UPDATE jobs SET ready = CASE WHEN solo THEN 3 ELSE 1 END
     WHERE seq = ANY (p_seqs) AND ready + 0 = 0 AND due <= p_now AND (gates IS NULL OR solo);
    SELECT array_agg(j.seq) AS seqs, array_agg(j.queue) AS queues,
           array_agg(j.gates::text) AS gates
      INTO v_jobs FROM jobs j
     WHERE j.seq = ANY (p_seqs) AND j.ready + 0 = 0 AND j.due <= p_now AND j.gates IS NOT NULL
       AND (p_held IS NULL OR limits_of(j.gates) <@ p_held);
    IF v_jobs.seqs IS NULL THEN
        RETURN;
    END IF;
    SELECT f.* INTO v_lanes FROM find_lanes(v_jobs.queues, v_jobs.gates) AS f;
    UPDATE jobs j SET ready = 2, lane = t.lane
      FROM unnest(v_jobs.seqs, v_lanes.lanes) AS t (seq, lane) WHERE j.seq = t.seq;
    PERFORM settle_lanes(v_lanes.unsettled, p_news => p_seqs);
END $$;

-- Make up to p_limit due jobs ready, longest due first; of one queue, or (NULL) of any. Returns
-- how many. Rows that another transaction holds are left to it. p_held: the names with which the caller
-- has called `lock_limits`; NULL, it has not, and jobs for lanes are left to a caller that has. Those
-- that were missed are made ready only if they were due by p_missed_until; of any queue, never.
CREATE OR REPLACE FUNCTION promote_jobs(
    p_queue text, p_limit integer, p_now timestamptz, p_held text[],
    p_missed_until timestamptz DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_seqs bigint[];
BEGIN
    IF p_queue IS NULL THEN
        v_seqs := ARRAY(
            SELECT seq FROM jobs
             WHERE ready = 0 AND due <= p_now AND (p_held IS NOT NULL OR solo OR gates IS NULL)
               AND missed_at IS NULL
             ORDER BY due, seq LIMIT p_limit FOR UPDATE SKIP LOCKED
        );
    ELSE
        v_seqs := ARRAY(
            SELECT seq FROM jobs
             WHERE queue BETWEEN p_queue AND p_queue AND ready = 0 AND due <= p_now
               AND (p_held IS NOT NULL OR solo OR gates IS NULL)
               AND (missed_at IS NULL OR due <= p_missed_until)
             ORDER BY queue, due, seq LIMIT p_limit FOR UPDATE SKIP LOCKED
        );
    END IF;
    IF cardinality(v_seqs) > 0 THEN
        PERFORM place_waiting(v_seqs, p_now, p_held);
    END IF;
    RETURN cardinality(v_seqs);
END $$;

-- `MaintenanceStore.promote`: how many jobs of all queues were made ready.
CREATE OR REPLACE FUNCTION promote_due(p_at timestamptz, p_durable boolean, p_limit integer)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_due record;
BEGIN
    SELECT count(*) AS count, array_agg(DISTINCT split_part(g, ':', 1)) AS limits INTO v_due
      FROM (SELECT j.gates, j.solo FROM jobs j
             WHERE j.ready = 0 AND j.due <= v_now AND j.missed_at IS NULL
             ORDER BY j.due, j.seq LIMIT p_limit) AS d
      LEFT JOIN LATERAL unnest(d.gates) AS g ON NOT d.solo;
    IF v_due.count = 0 THEN
        RETURN 0;
    END IF;
    PERFORM commit_durably(p_durable);
    v_due.limits := array_remove(v_due.limits, NULL);
    IF v_due.limits <> '{}' THEN
        PERFORM lock_limits(v_due.limits);
    ELSE
        v_due.limits := NULL;
    END IF;
    RETURN promote_jobs(NULL, p_limit, v_now, v_due.limits);
END $$;

-- --- ending without a claim ---------------------------------------------------------------------

-- Waiting jobs end here, cancelled (4) or discarded (5): they leave their lanes and let go of their
-- keys. Those that are not waiting any more stay as they are. Returns the ids of the others, as
-- hex digits. Callers that may name a job in a lane have called `lock_limits` before they locked the
-- rows. Members are counted; p_later: only noted, because the caller must not wait for their parts.
CREATE OR REPLACE FUNCTION end_waiting(
    p_seqs bigint[], p_state integer, p_reason text, p_now timestamptz,
    p_later boolean DEFAULT false
) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_seqs bigint[];
    v_ids text[];
    v_lanes bigint[];
    v_keys text[];
    v_holders bigint[];
    v_parts bigint[];
    v_was integer[];
BEGIN
    SELECT array_agg(w.seq), array_agg(encode(uuid_send(w.id), 'hex')),
           array_agg(DISTINCT w.lane) FILTER (WHERE w.lane IS NOT NULL),
           array_agg(w.key) FILTER (WHERE w.key_window <> 'for_a_time'),
           array_agg(w.seq) FILTER (WHERE w.key_window <> 'for_a_time'),
           array_agg(w.part) FILTER (WHERE w.part IS NOT NULL),
           array_agg((w.ready = 4)::integer) FILTER (WHERE w.part IS NOT NULL)
      INTO v_seqs, v_ids, v_lanes, v_keys, v_holders, v_parts, v_was
      FROM (SELECT seq, id, lane, key, key_window, part, ready FROM jobs
             WHERE seq = ANY (p_seqs) AND state + 0 = 0
             ORDER BY seq FOR UPDATE) AS w;
    UPDATE jobs SET state = p_state, ready = NULL, lane = NULL, finished_at = p_now,
                    reason = p_reason
     WHERE seq = ANY (v_seqs);
    IF v_keys IS NOT NULL THEN
        PERFORM free_keys(v_keys, v_holders);
    END IF;
    IF v_lanes IS NOT NULL THEN
        PERFORM settle_lanes(v_lanes);
    END IF;
    IF v_parts IS NOT NULL AND p_later THEN
        PERFORM note_members(v_parts, v_was, array_fill(4, ARRAY[cardinality(v_parts)]));
    ELSIF v_parts IS NOT NULL THEN
        PERFORM count_members(p_now, v_parts, v_was, array_fill(4, ARRAY[cardinality(v_parts)]));
    END IF;
    RETURN coalesce(v_ids, '{}');
END $$;

-- `MaintenanceStore.expire`: the ids of the waiting jobs past their expiry that were discarded.
CREATE OR REPLACE FUNCTION expire_jobs(p_at timestamptz, p_durable boolean, p_limit integer)
RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_seqs bigint[] := ARRAY(
        SELECT seq FROM jobs
         WHERE ready IS NOT NULL AND expires_at IS NOT NULL AND expires_at <= v_now
         ORDER BY expires_at LIMIT p_limit);
    v_held text[];
BEGIN
    IF v_seqs = '{}' THEN
        RETURN '{}';
    END IF;
    PERFORM commit_durably(p_durable);
    v_held := limits_of_jobs(v_seqs);
    IF v_held <> '{}' THEN
        PERFORM lock_limits(v_held);
    END IF;
    v_seqs := ARRAY(
        SELECT seq FROM jobs
         WHERE ready IS NOT NULL AND expires_at IS NOT NULL AND expires_at <= v_now
           AND (gates IS NULL OR limits_of(gates) <@ v_held)
         ORDER BY expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    );
    RETURN end_waiting(v_seqs, 5, 'expired', v_now);
END $$;

-- The same for processes of an older Windlass: how many.
CREATE OR REPLACE FUNCTION expire_waiting(p_at timestamptz, p_durable boolean, p_limit integer)
RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    RETURN cardinality(expire_jobs(p_at, p_durable, p_limit));
END $$;
