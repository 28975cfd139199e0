-- What is counted of finishes, and of enqueues that a unique key answered with a stored job.

-- The verbs that end a claim, in the order in which `rollups.counts` counts them.
CREATE OR REPLACE FUNCTION finishing_verbs() RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT '{succeed,retry,snooze,throttle,release,fail,cancel}'::text[]
$$;

-- All that `rollups.counts` counts, in order. Rows that were made before the last one was counted are
-- shorter.
CREATE OR REPLACE FUNCTION counted_names() RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT finishing_verbs() || 'coalesce'::text
$$;

-- Where the buckets from 1 on begin, in microseconds: bucket_of in _core/stats/rollup.py, exact below 8,
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
LANGUAGE plpgsql AS $$
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

-- The same for finishes of any queues, tasks and workers, an entry each: in the order of the rows' keys,
-- as every caller writes them.
CREATE OR REPLACE FUNCTION add_rollups(
    p_now timestamptz, p_queues text[], p_tasks text[], p_workers text[],
    p_verbs integer[], p_wait integer[], p_run integer[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
BEGIN
    FOR v_row IN
        SELECT t.queue, t.task, t.worker, array_agg(t.verb) AS verbs, array_agg(t.wait) AS wait,
               array_agg(t.run) AS run
          FROM unnest(p_queues, p_tasks, p_workers, p_verbs, p_wait, p_run)
               AS t (queue, task, worker, verb, wait, run)
         GROUP BY t.queue, t.task, t.worker
         ORDER BY t.queue COLLATE "C", t.task COLLATE "C", t.worker COLLATE "C"
    LOOP
        PERFORM add_rollup(p_now, v_row.queue, v_row.task, v_row.worker, v_row.verbs, v_row.wait,
                           v_row.run);
    END LOOP;
END $$;

-- Count enqueues of these queues and tasks (an entry each) that a key answered with a stored job. Each
-- session has its own row, in the place of a worker's: a transaction of the user's may stay open, and no
-- other producer may wait for it.
CREATE OR REPLACE FUNCTION count_coalesced(p_now timestamptz, p_queues text[], p_tasks text[])
RETURNS void
LANGUAGE sql AS $$
    INSERT INTO rollups AS r (minute, queue, task, worker, counts, wait, run)
    SELECT date_trunc('minute', p_now), t.queue, t.task, concat('(enqueue ', pg_backend_pid(), ')'),
           ARRAY[0, 0, 0, 0, 0, 0, 0, count(*)], '{}', '{}'
      FROM unnest(p_queues, p_tasks) AS t (queue, task)
     GROUP BY t.queue, t.task
    ON CONFLICT (minute, queue, task, worker)
    DO UPDATE SET counts[8] = coalesce(r.counts[8], 0) + excluded.counts[8]
$$;

-- Rollups as they are stored, with p_since <= minute < p_until: for each histogram, which bucket
-- its first entry is of. Readers merge those of different workers.
CREATE OR REPLACE FUNCTION read_rollups(p_since timestamptz, p_until timestamptz)
RETURNS TABLE (
    minute timestamptz, queue text, task text, verbs text[], counts bigint[],
    wait_from integer, wait bigint[], run_from integer, run bigint[]
)
LANGUAGE sql STABLE AS $$
    SELECT r.minute, r.queue, r.task, counted_names(),
           CASE WHEN cardinality(r.counts) = 8 THEN r.counts ELSE r.counts || 0::bigint END,
           array_lower(r.wait, 1),
           r.wait, array_lower(r.run, 1), r.run
      FROM rollups r
     WHERE r.minute >= p_since AND r.minute < p_until
     ORDER BY r.minute, r.queue, r.task
$$;

-- Sum up rows of rollups (p_rows, of one queue and task) into one with this minute and worker.
CREATE OR REPLACE FUNCTION store_sum(p_rows rollups[], p_minute timestamptz, p_worker text)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_counts bigint[] := '{0,0,0,0,0,0,0,0}';
    v_wait bigint[] := '{}';
    v_run bigint[] := '{}';
    v_row rollups;
    i integer;
BEGIN
    FOREACH v_row IN ARRAY p_rows LOOP
        FOR i IN 1 .. cardinality(v_counts) LOOP
            v_counts[i] := v_counts[i] + coalesce(v_row.counts[i], 0);
        END LOOP;
        FOR i IN coalesce(array_lower(v_row.wait, 1), 0) .. coalesce(array_upper(v_row.wait, 1), -1)
        LOOP
            IF v_row.wait[i] IS NOT NULL THEN
                v_wait[i] := coalesce(v_wait[i], 0) + v_row.wait[i];
            END IF;
        END LOOP;
        FOR i IN coalesce(array_lower(v_row.run, 1), 0) .. coalesce(array_upper(v_row.run, 1), -1)
        LOOP
            IF v_row.run[i] IS NOT NULL THEN
                v_run[i] := coalesce(v_run[i], 0) + v_row.run[i];
            END IF;
        END LOOP;
    END LOOP;
    INSERT INTO rollups (minute, queue, task, worker, counts, wait, run)
    VALUES (p_minute, p_rows[1].queue, p_rows[1].task, p_worker, v_counts, v_wait, v_run);
END $$;

-- `MaintenanceStore.compact_rollups`: how many rows that saved. The rows of an hour become one per
-- queue and task, of its first minute, without a worker's name; those that were copied from another
-- store stay apart, so that they can be copied again. From hour to hour in the index: what has been
-- compacted is passed by.
CREATE OR REPLACE FUNCTION compact_rollups(p_at timestamptz, p_older bigint, p_limit integer)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_end timestamptz := coalesce(p_at, clock_timestamp()) - p_older * interval '1 microsecond'
                         - interval '1 hour';
    v_hour timestamptz := '-infinity';
    v_minute timestamptz;
    v_group record;
    v_met integer := 0;
    v_saved integer := 0;
BEGIN
    -- One at a time: two of them would each put a sum in the same place.
    IF NOT pg_try_advisory_xact_lock(
        hashtextextended(current_schema || '/compact_rollups', 0)) THEN
        RETURN 0;
    END IF;
    WHILE v_met < p_limit LOOP
        SELECT r.minute INTO v_minute FROM rollups r
         WHERE r.minute >= v_hour AND r.minute < v_end + interval '1 hour'
         ORDER BY r.minute LIMIT 1;
        EXIT WHEN NOT FOUND;
        v_hour := date_trunc('hour', v_minute, 'UTC');
        EXIT WHEN v_hour >= v_end;
        IF EXISTS (SELECT 1 FROM rollups r
                    WHERE r.minute > v_hour AND r.minute < v_hour + interval '1 hour')
           OR EXISTS (SELECT 1 FROM rollups r
                       WHERE r.minute = v_hour AND r.worker NOT IN ('', copied_from())) THEN
            -- A row that is locked is written in a transaction of the user's that stays open: later.
            FOR v_group IN
                WITH gone AS (
                    DELETE FROM rollups WHERE ctid = ANY (ARRAY(
                        SELECT r.ctid FROM rollups r
                         WHERE r.minute >= v_hour AND r.minute < v_hour + interval '1 hour'
                           FOR UPDATE SKIP LOCKED))
                    RETURNING *
                )
                SELECT array_agg(g::rollups) AS rows, count(*)::integer AS many,
                       CASE WHEN g.worker = copied_from() THEN g.worker ELSE '' END AS name
                  FROM gone g GROUP BY g.queue, g.task, 3
            LOOP
                PERFORM store_sum(v_group.rows, v_hour, v_group.name);
                v_met := v_met + v_group.many;
                v_saved := v_saved + v_group.many - 1;
            END LOOP;
        END IF;
        v_hour := v_hour + interval '1 hour';
    END LOOP;
    RETURN v_saved;
END $$;

-- The worker's name in rollups that were copied from another store.
CREATE OR REPLACE FUNCTION copied_from() RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT '(copy)'
$$;
