-- How many jobs are where, and by which errors they failed, however many there are.

-- Every queue that has jobs: from one name to the next in each index that begins with it.
CREATE OR REPLACE FUNCTION queues_with_jobs() RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE
    in_line AS (
        (SELECT j.queue FROM jobs j WHERE j.ready = 1 ORDER BY j.queue LIMIT 1)
        UNION ALL
        SELECT (SELECT j.queue FROM jobs j WHERE j.ready = 1 AND j.queue > b.queue
                 ORDER BY j.queue LIMIT 1)
          FROM in_line b WHERE b.queue IS NOT NULL
    ), alone AS (
        (SELECT j.queue FROM jobs j WHERE j.ready = 3 ORDER BY j.queue LIMIT 1)
        UNION ALL
        SELECT (SELECT j.queue FROM jobs j WHERE j.ready = 3 AND j.queue > b.queue
                 ORDER BY j.queue LIMIT 1)
          FROM alone b WHERE b.queue IS NOT NULL
    ), later AS (
        (SELECT j.queue FROM jobs j WHERE j.ready = 0 ORDER BY j.queue LIMIT 1)
        UNION ALL
        SELECT (SELECT j.queue FROM jobs j WHERE j.ready = 0 AND j.queue > b.queue
                 ORDER BY j.queue LIMIT 1)
          FROM later b WHERE b.queue IS NOT NULL
    ), blocked AS (
        (SELECT j.queue FROM jobs j WHERE j.ready = 4 ORDER BY j.queue LIMIT 1)
        UNION ALL
        SELECT (SELECT j.queue FROM jobs j WHERE j.ready = 4 AND j.queue > b.queue
                 ORDER BY j.queue LIMIT 1)
          FROM blocked b WHERE b.queue IS NOT NULL
    ), in_lane AS (
        (SELECT l.queue FROM lane_digests l ORDER BY l.queue LIMIT 1)
        UNION ALL
        SELECT (SELECT l.queue FROM lane_digests l WHERE l.queue > b.queue
                 ORDER BY l.queue LIMIT 1)
          FROM in_lane b WHERE b.queue IS NOT NULL
    ), ended AS (
        SELECT s.state, (SELECT j.queue FROM jobs j WHERE j.state >= 2 AND j.state = s.state
                          ORDER BY j.queue LIMIT 1) AS queue
          FROM unnest('{2,3,4,5}'::smallint[]) AS s (state)
        UNION ALL
        SELECT b.state, (SELECT j.queue FROM jobs j WHERE j.state >= 2 AND j.state = b.state
                            AND j.queue > b.queue ORDER BY j.queue LIMIT 1)
          FROM ended b WHERE b.queue IS NOT NULL
    )
    SELECT a.queue
      FROM (SELECT i.queue FROM in_line i UNION SELECT i.queue FROM alone i
            UNION SELECT i.queue FROM later i UNION SELECT i.queue FROM ended i
            UNION SELECT l.queue FROM in_lane l UNION SELECT i.queue FROM blocked i
            UNION SELECT j.queue FROM jobs j WHERE j.state = 1) AS a
     WHERE a.queue IS NOT NULL;
END $$;

-- Since when the job waits that has been in the lines of a queue for longest: the first of every
-- priority, up to p_most of them, because a line is ordered by priority first.
CREATE OR REPLACE FUNCTION oldest_due(p_queue text, p_now timestamptz, p_most integer)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        WITH RECURSIVE line AS (
            (SELECT j.priority, j.due FROM jobs j WHERE j.queue = p_queue AND j.ready = 1
              ORDER BY j.priority, j.due LIMIT 1)
            UNION ALL
            SELECT n.priority, n.due FROM line b, LATERAL (
                SELECT j.priority, j.due FROM jobs j
                 WHERE j.queue = p_queue AND j.ready = 1 AND j.priority > b.priority
                 ORDER BY j.priority, j.due LIMIT 1) AS n
        ), lane_lines AS (
            SELECT l.lane AS id, n.priority, n.due FROM lane_digests l, LATERAL (
                SELECT j.priority, j.due FROM jobs j WHERE j.lane = l.lane AND j.ready = 2
                 ORDER BY j.priority, j.due LIMIT 1) AS n
             WHERE l.queue = p_queue
            UNION ALL
            SELECT b.id, n.priority, n.due FROM lane_lines b, LATERAL (
                SELECT j.priority, j.due FROM jobs j
                 WHERE j.lane = b.id AND j.ready = 2 AND j.priority > b.priority
                 ORDER BY j.priority, j.due LIMIT 1) AS n
        )
        SELECT least(
            (SELECT min(a.due) FROM (SELECT i.due FROM line i LIMIT p_most) AS a),
            (SELECT min(a.due) FROM (SELECT i.due FROM lane_lines i LIMIT p_most) AS a),
            (SELECT min(a.due) FROM (SELECT j.due FROM jobs j
                                      WHERE j.queue = p_queue AND j.ready = 3 LIMIT p_most) AS a),
            -- Due, and not in its line yet.
            (SELECT j.due FROM jobs j
              WHERE j.queue BETWEEN p_queue AND p_queue AND j.ready = 0 AND j.due <= p_now
              ORDER BY j.queue, j.due LIMIT 1)));
END $$;

-- What `AdminStore.counts` says of one queue, but for the running ones. No number above p_cap.
CREATE OR REPLACE FUNCTION count_queue(
    p_queue text, p_now timestamptz, p_cap integer,
    OUT ready bigint, OUT scheduled bigint, OUT ended bigint[], OUT retrying bigint,
    OUT oldest_due timestamptz
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    ready := (
        SELECT count(*)
          FROM (SELECT 1 FROM jobs j WHERE j.queue = p_queue AND j.ready = 1
                UNION ALL SELECT 1 FROM jobs j WHERE j.queue = p_queue AND j.ready = 3
                UNION ALL SELECT 1 FROM jobs j WHERE j.queue = p_queue AND j.ready = 0
                                                 AND j.due <= p_now
                -- Lane by lane: not from all that stand in lanes back to those of this queue.
                UNION ALL SELECT 1 FROM lane_digests l, LATERAL (
                              SELECT 1 FROM jobs j WHERE j.lane = l.lane AND j.ready = 2
                               LIMIT p_cap) AS i
                           WHERE l.queue = p_queue
                LIMIT p_cap) AS a);
    -- Blocked members are among these: their time has not come.
    scheduled := (SELECT count(*)
                    FROM (SELECT 1 FROM jobs j WHERE j.queue = p_queue AND j.ready = 0
                                                 AND j.due > p_now
                          UNION ALL
                          SELECT 1 FROM jobs j WHERE j.queue = p_queue AND j.ready = 4
                          LIMIT p_cap) AS a);
    retrying := (SELECT count(*)
                   FROM (SELECT 1 FROM jobs j
                          WHERE j.queue = p_queue AND j.ready IS NOT NULL
                            AND j.attempt > j.max_attempts - j.budget LIMIT p_cap) AS a);
    FOR i IN 1 .. 4 LOOP
        ended[i] := (SELECT count(*) FROM (SELECT 1 FROM jobs j
                                            WHERE j.state >= 2 AND j.state = i + 1
                                              AND j.queue = p_queue LIMIT p_cap) AS a);
    END LOOP;
    IF ready > 0 THEN
        oldest_due := oldest_due(p_queue, p_now, greatest(p_cap, 10000));
    END IF;
END $$;

-- `AdminStore.counts` with a cap. ended: succeeded, failed, cancelled, discarded.
CREATE OR REPLACE FUNCTION count_up_to(p_at timestamptz, p_cap integer)
RETURNS TABLE (
    queue text, ready bigint, scheduled bigint, running bigint, ended bigint[], retrying bigint,
    oldest_due timestamptz
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
BEGIN
    RETURN QUERY
    SELECT q.name, c.ready, c.scheduled, least(coalesce(r.many, 0), p_cap), c.ended, c.retrying,
           c.oldest_due
      FROM queues_with_jobs() AS q (name)
      -- No more run than there are slots in all workers.
      LEFT JOIN (SELECT j.queue, count(*) AS many FROM jobs j WHERE j.state = 1
                  GROUP BY j.queue) AS r ON r.queue = q.name
     CROSS JOIN LATERAL count_queue(q.name, v_now, p_cap) AS c;
END $$;

-- `AdminStore.counts` without one: reads the whole table.
CREATE OR REPLACE FUNCTION count_all(p_at timestamptz)
RETURNS TABLE (
    queue text, ready bigint, scheduled bigint, running bigint, ended bigint[], retrying bigint,
    oldest_due timestamptz
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
BEGIN
    RETURN QUERY
    SELECT j.queue, count(*) FILTER (WHERE j.ready < 4 AND j.due <= v_now),
           count(*) FILTER (WHERE j.ready = 4 OR (j.ready < 4 AND j.due > v_now)),
           count(*) FILTER (WHERE j.state = 1),
           ARRAY[count(*) FILTER (WHERE j.state = 2), count(*) FILTER (WHERE j.state = 3),
                 count(*) FILTER (WHERE j.state = 4), count(*) FILTER (WHERE j.state = 5)],
           count(*) FILTER (WHERE j.state = 0 AND j.attempt > j.max_attempts - j.budget),
           min(j.due) FILTER (WHERE j.ready < 4 AND j.due <= v_now)
      FROM jobs j GROUP BY j.queue;
END $$;

-- `AdminStore.errors`: the groups, the most recent first. complete, in every row: all failed jobs were
-- looked at. Without any group one row that says no more than that.
CREATE OR REPLACE FUNCTION error_groups(
    p_queue text, p_task text, p_since timestamptz, p_look integer
) RETURNS TABLE (
    complete boolean, kind text, frame text, count bigint, first timestamptz, last timestamptz,
    job uuid, said text, tasks text[], queues text[]
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_since timestamptz := coalesce(p_since, '-infinity');
BEGIN
    RETURN QUERY
    WITH looked AS MATERIALIZED (
        (SELECT j.seq, j.queue, j.task, j.finished_at, j.error_kind, j.error_frame FROM jobs j
          WHERE p_queue IS NULL AND j.state = 3 AND j.finished_at >= v_since
          ORDER BY j.finished_at DESC, j.seq DESC LIMIT p_look + 1)
        UNION ALL
        -- Only the index by queue has this order.
        (SELECT j.seq, j.queue, j.task, j.finished_at, j.error_kind, j.error_frame FROM jobs j
          WHERE p_queue IS NOT NULL AND j.state >= 2 AND j.state = 3
            AND j.queue BETWEEN p_queue AND p_queue AND j.finished_at >= v_since
          ORDER BY j.queue DESC, j.finished_at DESC LIMIT p_look + 1)
    ), groups AS (
        SELECT coalesce(f.error_kind, '') AS kind, coalesce(f.error_frame, '') AS frame,
               count(*) AS many, min(f.finished_at) AS first, max(f.finished_at) AS last,
               (array_agg(f.seq ORDER BY f.finished_at DESC, f.seq DESC))[1] AS newest,
               array_agg(DISTINCT f.task ORDER BY f.task) AS tasks,
               array_agg(DISTINCT f.queue ORDER BY f.queue) AS queues
          FROM (SELECT l.* FROM looked l LIMIT p_look) AS f
         WHERE p_task IS NULL OR f.task = p_task
         GROUP BY 1, 2
    )
    SELECT c.complete, g.kind, g.frame, g.many, g.first, g.last,
           (SELECT j.id FROM jobs j WHERE j.seq = g.newest),
           (SELECT left(coalesce(j.error_message, ''), 500) FROM jobs j WHERE j.seq = g.newest),
           g.tasks, g.queues
      FROM (SELECT count(*) <= p_look AS complete FROM looked l) AS c
      LEFT JOIN groups g ON true
     ORDER BY g.last DESC, g.newest DESC;
END $$;

-- `FlowStore.counts`: each number up to p_cap, from indexes.
CREATE OR REPLACE FUNCTION count_flows(
    p_cap integer, OUT running bigint, OUT succeeded bigint, OUT failed bigint,
    OUT cancelled bigint, OUT blocked bigint, OUT oldest timestamptz
)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    running := (SELECT count(*) FROM (SELECT 1 FROM flows f WHERE f.ended_at IS NULL
                                       LIMIT p_cap) AS counted);
    succeeded := (SELECT count(*) FROM (SELECT 1 FROM flows f
                                         WHERE f.ended_at IS NOT NULL AND f.state = 1 AND NOT f.gone
                                         LIMIT p_cap) AS counted);
    failed := (SELECT count(*) FROM (SELECT 1 FROM flows f
                                      WHERE f.ended_at IS NOT NULL AND f.state = 2 AND NOT f.gone
                                      LIMIT p_cap) AS counted);
    cancelled := (SELECT count(*) FROM (SELECT 1 FROM flows f
                                         WHERE f.ended_at IS NOT NULL AND f.state = 3 AND NOT f.gone
                                         LIMIT p_cap) AS counted);
    blocked := (SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE j.ready = 4 LIMIT p_cap) AS counted);
    oldest := (SELECT min(f.created_at) FROM flows f WHERE f.ended_at IS NULL);
END $$;
