-- What is counted of finishes.

-- The verbs that end a claim, in the order in which `rollups.counts` counts them.
CREATE OR REPLACE FUNCTION finishing_verbs() RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT '{succeed,retry,snooze,throttle,release,fail,cancel}'::text[]
$$;

-- Where the buckets from 1 on begin, in microseconds: bucket_of in core/rollup.py, exact below 8,
-- then four per doubling. So a bucket is width_bucket(us, bucket_bottoms()).
CREATE OR REPLACE FUNCTION bucket_bottoms() RETURNS bigint[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(CASE WHEN b < 8 THEN b::bigint
                          ELSE (4 + (b + 4) % 4)::bigint << ((b + 4) / 4 - 2) END ORDER BY b)
      FROM generate_series(1, 239) AS b
$$;

-- A span in whole microseconds.
CREATE OR REPLACE FUNCTION span_us(p_from timestamptz, p_to timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (date_part('epoch', p_to - p_from) * 1000000)::bigint
$$;

-- Count accepted finishes of one queue, task and worker: their verbs (by place in
-- `finishing_verbs`), how long they waited and ran (buckets), an entry each.
CREATE OR REPLACE FUNCTION add_rollup(
    p_now timestamptz, p_queue text, p_task text, p_worker text,
    p_verbs integer[], p_wait integer[], p_run integer[]
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_minute timestamptz := date_trunc('minute', p_now);
    v_counts bigint[];
    v_wait bigint[];
    v_run bigint[];
    v_part record;
BEGIN
    LOOP
        SELECT r.counts, r.wait, r.run INTO v_counts, v_wait, v_run FROM rollups r
         WHERE r.minute = v_minute AND r.queue = p_queue AND r.task = p_task
           AND r.worker = p_worker
           FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO rollups (minute, queue, task, worker, counts, wait, run)
        VALUES (v_minute, p_queue, p_task, p_worker, '{0,0,0,0,0,0,0}', '{}', '{}')
        ON CONFLICT DO NOTHING;
    END LOOP;
    -- Most entries share a few buckets.
    FOR v_part IN SELECT e.n, count(*) AS many FROM unnest(p_verbs) AS e (n) GROUP BY e.n LOOP
        v_counts[v_part.n] := v_counts[v_part.n] + v_part.many;
    END LOOP;
    FOR v_part IN SELECT e.n, count(*) AS many FROM unnest(p_wait) AS e (n) GROUP BY e.n LOOP
        v_wait[v_part.n] := coalesce(v_wait[v_part.n], 0) + v_part.many;
    END LOOP;
    FOR v_part IN SELECT e.n, count(*) AS many FROM unnest(p_run) AS e (n) GROUP BY e.n LOOP
        v_run[v_part.n] := coalesce(v_run[v_part.n], 0) + v_part.many;
    END LOOP;
    UPDATE rollups r SET counts = v_counts, wait = v_wait, run = v_run
     WHERE r.minute = v_minute AND r.queue = p_queue AND r.task = p_task AND r.worker = p_worker;
END $$;

-- Rollups as they are stored, with p_since <= minute < p_until: for each histogram, which bucket
-- its first entry is of. Readers merge those of different workers.
CREATE OR REPLACE FUNCTION read_rollups(p_since timestamptz, p_until timestamptz)
RETURNS TABLE (
    minute timestamptz, queue text, task text, verbs text[], counts bigint[],
    wait_from integer, wait bigint[], run_from integer, run bigint[]
)
LANGUAGE sql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
    SELECT r.minute, r.queue, r.task, finishing_verbs(), r.counts, array_lower(r.wait, 1),
           r.wait, array_lower(r.run, 1), r.run
      FROM rollups r
     WHERE r.minute >= p_since AND r.minute < p_until
     ORDER BY r.minute, r.queue, r.task
$$;
