-- Jobs in the order of a time, or of their numbers from the oldest on. The order NULL or '-enqueued' is
-- that of find_jobs.

-- Of each state and queue with ended jobs when the first one behind an instant ended. From one queue to
-- the next by the index, as in `prune`.
CREATE OR REPLACE FUNCTION ended_heads(
    w job_filter, p_states smallint[], p_back boolean, p_at timestamptz
) RETURNS TABLE (state smallint, queue text, head timestamptz)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_state smallint;
BEGIN
    FOREACH v_state IN ARRAY p_states LOOP
        RETURN QUERY
        WITH RECURSIVE lines (name) AS (
            SELECT coalesce(w.queue, (SELECT j.queue FROM jobs j
                                       WHERE j.state >= 2 AND j.state = v_state
                                       ORDER BY j.queue LIMIT 1))
            UNION ALL
            SELECT (SELECT j.queue FROM jobs j
                     WHERE j.state >= 2 AND j.state = v_state AND j.queue > l.name
                     ORDER BY j.queue LIMIT 1)
              FROM lines l WHERE l.name IS NOT NULL AND w.queue IS NULL
        )
        SELECT h.state, h.queue, h.head
          FROM (SELECT v_state AS state, l.name AS queue,
                       CASE WHEN p_back
                            THEN (SELECT max(j.finished_at) FROM jobs j
                                   WHERE j.state >= 2 AND j.state = v_state AND j.queue = l.name
                                     AND j.finished_at <= p_at)
                            ELSE (SELECT min(j.finished_at) FROM jobs j
                                   WHERE j.state >= 2 AND j.state = v_state AND j.queue = l.name
                                     AND j.finished_at >= p_at) END AS head
                  FROM lines l WHERE l.name IS NOT NULL) AS h
         WHERE h.head IS NOT NULL;
    END LOOP;
END $$;

-- The next p_most ended jobs behind a place, in the order of when they ended. Each state and queue is a
-- line of the index: only lines are read whose first one is among the best.
CREATE OR REPLACE FUNCTION next_ended(
    w job_filter, p_states smallint[], p_back boolean, p_at timestamptz, p_seq bigint, p_most integer,
    OUT ats timestamptz[], OUT seqs bigint[]
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_from timestamptz := coalesce(w.finished_from, '-infinity');
    v_until timestamptz := coalesce(w.finished_until, 'infinity');
    v_line record;
    v_more record;
BEGIN
    ats := '{}';
    seqs := '{}';
    -- Failed jobs of all queues have an index that knows the numbers, too.
    IF 3 = ANY (p_states) AND w.queue IS NULL THEN
        IF p_back THEN
            SELECT array_agg(a.finished_at), array_agg(a.seq) INTO ats, seqs
              FROM (SELECT j.finished_at, j.seq FROM jobs j
                     WHERE j.state = 3 AND (j.finished_at, j.seq) < (p_at, p_seq)
                       AND j.finished_at >= v_from
                     ORDER BY j.finished_at DESC, j.seq DESC LIMIT p_most) AS a;
        ELSE
            SELECT array_agg(a.finished_at), array_agg(a.seq) INTO ats, seqs
              FROM (SELECT j.finished_at, j.seq FROM jobs j
                     WHERE j.state = 3 AND (j.finished_at, j.seq) > (p_at, p_seq)
                       AND j.finished_at < v_until
                     ORDER BY j.finished_at, j.seq LIMIT p_most) AS a;
        END IF;
        ats := coalesce(ats, '{}');
        seqs := coalesce(seqs, '{}');
        p_states := array_remove(p_states, 3::smallint);
    END IF;
    FOR v_line IN
        SELECT h.state, h.queue, h.head FROM ended_heads(w, p_states, p_back, p_at) AS h
         ORDER BY CASE WHEN p_back THEN h.head END DESC, CASE WHEN NOT p_back THEN h.head END
    LOOP
        EXIT WHEN cardinality(ats) >= p_most
              AND CASE WHEN p_back THEN v_line.head < ats[p_most] ELSE v_line.head > ats[p_most] END;
        IF p_back THEN
            SELECT array_agg(m.at) AS ats, array_agg(m.seq) AS seqs INTO v_more
              FROM (SELECT a.at, a.seq
                      FROM (SELECT u.at, u.seq FROM unnest(ats, seqs) AS u (at, seq)
                            UNION ALL
                            (SELECT j.finished_at, j.seq FROM jobs j
                              WHERE j.state >= 2 AND j.state = v_line.state AND j.queue = v_line.queue
                                AND j.finished_at <= p_at
                                AND (j.finished_at < p_at OR j.seq < p_seq)
                                AND j.finished_at >= v_from
                              ORDER BY j.finished_at DESC, j.seq DESC LIMIT p_most)) AS a
                     ORDER BY a.at DESC, a.seq DESC LIMIT p_most) AS m;
        ELSE
            SELECT array_agg(m.at) AS ats, array_agg(m.seq) AS seqs INTO v_more
              FROM (SELECT a.at, a.seq
                      FROM (SELECT u.at, u.seq FROM unnest(ats, seqs) AS u (at, seq)
                            UNION ALL
                            (SELECT j.finished_at, j.seq FROM jobs j
                              WHERE j.state >= 2 AND j.state = v_line.state AND j.queue = v_line.queue
                                AND j.finished_at >= p_at
                                AND (j.finished_at > p_at OR j.seq > p_seq)
                                AND j.finished_at < v_until
                              ORDER BY j.finished_at, j.seq LIMIT p_most)) AS a
                     ORDER BY a.at, a.seq LIMIT p_most) AS m;
        END IF;
        ats := coalesce(v_more.ats, '{}');
        seqs := coalesce(v_more.seqs, '{}');
    END LOOP;
END $$;

-- The same of those that wait for their time, and of those that run. These are few: they are sorted.
CREATE OR REPLACE FUNCTION next_active(
    w job_filter, p_order text, p_back boolean, p_at timestamptz, p_seq bigint, p_most integer,
    p_now timestamptz, OUT ats timestamptz[], OUT seqs bigint[]
)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_order = 'started' THEN
        SELECT array_agg(a.at), array_agg(a.seq) INTO ats, seqs
          FROM (SELECT coalesce(j.started_at, '-infinity') AS at, j.seq FROM jobs j
                 WHERE j.state = 1 AND (w.worker IS NULL OR j.worker = w.worker)
                   AND CASE WHEN p_back
                            THEN (coalesce(j.started_at, '-infinity'), j.seq) < (p_at, p_seq)
                            ELSE (coalesce(j.started_at, '-infinity'), j.seq) > (p_at, p_seq) END
                 ORDER BY CASE WHEN p_back THEN j.started_at END DESC,
                          CASE WHEN NOT p_back THEN j.started_at END,
                          CASE WHEN p_back THEN -j.seq ELSE j.seq END
                 LIMIT p_most) AS a;
    ELSIF p_back AND w.queue IS NULL THEN
        SELECT array_agg(a.due), array_agg(a.seq) INTO ats, seqs
          FROM (SELECT j.due, j.seq FROM jobs j
                 WHERE j.ready = 0 AND (j.due, j.seq) < (p_at, p_seq) AND j.due > p_now
                 ORDER BY j.due DESC, j.seq DESC LIMIT p_most) AS a;
    ELSIF p_back THEN
        SELECT array_agg(a.due), array_agg(a.seq) INTO ats, seqs
          FROM (SELECT j.due, j.seq FROM jobs j
                 WHERE j.ready = 0 AND j.queue BETWEEN w.queue AND w.queue
                   AND (j.due, j.seq) < (p_at, p_seq) AND j.due > p_now
                 ORDER BY j.queue DESC, j.due DESC, j.seq DESC LIMIT p_most) AS a;
    ELSIF w.queue IS NULL THEN
        SELECT array_agg(a.due), array_agg(a.seq) INTO ats, seqs
          FROM (SELECT j.due, j.seq FROM jobs j
                 WHERE j.ready = 0 AND (j.due, j.seq) > (p_at, p_seq) AND j.due > p_now
                 ORDER BY j.due, j.seq LIMIT p_most) AS a;
    ELSE
        SELECT array_agg(a.due), array_agg(a.seq) INTO ats, seqs
          FROM (SELECT j.due, j.seq FROM jobs j
                 WHERE j.ready = 0 AND j.queue BETWEEN w.queue AND w.queue
                   AND (j.due, j.seq) > (p_at, p_seq) AND j.due > p_now
                 ORDER BY j.queue, j.due, j.seq LIMIT p_most) AS a;
    END IF;
    ats := coalesce(ats, '{}');
    seqs := coalesce(seqs, '{}');
END $$;

-- The next p_most jobs behind a place: all that may be asked for, and others. p_rare: the jobs of a list
-- by number, the newest first, where they are few.
CREATE OR REPLACE FUNCTION next_in_list(
    w job_filter, p_time text, p_back boolean, p_at timestamptz, p_seq bigint, p_most integer,
    p_now timestamptz, p_rare bigint[], OUT ats timestamptz[], OUT seqs bigint[]
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_states smallint[];
BEGIN
    IF p_time = 'finished' THEN
        v_states := ARRAY(
            SELECT s.state FROM generate_series(2, 5) AS s (state)
             WHERE (w.states IS NULL OR s.state = ANY (w.states))
               AND (w.shown IS NULL
                    OR ('{running,succeeded,failed,cancelled,discarded}'::text[])[s.state]
                       = ANY (w.shown)));
        SELECT n.ats, n.seqs INTO ats, seqs
          FROM next_ended(w, v_states, p_back, p_at, p_seq, p_most) AS n;
    ELSIF p_time <> 'enqueued' THEN
        SELECT n.ats, n.seqs INTO ats, seqs
          FROM next_active(w, p_time, p_back, p_at, p_seq, p_most, p_now) AS n;
    ELSIF p_rare IS NULL THEN
        SELECT array_agg(a.created_at), array_agg(a.seq) INTO ats, seqs
          FROM (SELECT j.created_at, j.seq FROM jobs j WHERE j.seq > p_seq
                 ORDER BY j.seq LIMIT p_most) AS a;
    ELSE
        SELECT array_agg(a.created_at), array_agg(a.seq) INTO ats, seqs
          FROM (SELECT j.created_at, j.seq
                  FROM (SELECT r.seq, r.n FROM unnest(p_rare) WITH ORDINALITY AS r (seq, n)
                         WHERE r.seq > p_seq ORDER BY r.n DESC LIMIT p_most) AS r
                  JOIN jobs j ON j.seq = r.seq
                 ORDER BY r.n DESC) AS a;
    END IF;
    ats := coalesce(ats, '{}');
    seqs := coalesce(seqs, '{}');
END $$;

-- `AdminStore.find`: the numbers of up to p_limit jobs in an order, behind the place of the last page:
-- its number, and its instant where the list is by time. next, next_at and reached as in Page in
-- protocol/lists/job_list.py; p_left, p_parts and looked as in find_jobs.
CREATE OR REPLACE FUNCTION list_jobs(
    p_now timestamptz, p_order text, p_at timestamptz, p_seq bigint, p_limit integer, w job_filter,
    p_left integer DEFAULT NULL, p_parts bigint[] DEFAULT NULL,
    OUT seqs bigint[], OUT next bigint, OUT next_at timestamptz, OUT reached timestamptz,
    OUT looked integer
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_stop timestamptz := clock_timestamp() + interval '100 milliseconds';
    v_back boolean := p_order LIKE '-%';
    v_time text := ltrim(p_order, '-');
    v_at timestamptz := p_at;
    v_seq bigint := p_seq;
    v_left integer := coalesce(p_left, CASE WHEN w.words IS NULL THEN 20000 ELSE 2000 END);
    v_step integer := least(p_limit + 1, v_left);
    v_rare bigint[];
    v_some record;
    v_last integer;
BEGIN
    IF p_order = '-enqueued' THEN
        SELECT f.seqs, f.next, f.reached, f.looked INTO seqs, next, reached, looked
          FROM find_jobs(p_now, p_seq, p_limit, w, p_left, p_parts) AS f;
        RETURN;
    END IF;
    IF v_time = 'enqueued' THEN
        v_seq := coalesce(v_seq, 0);
        IF p_parts IS NULL THEN
            v_rare := gather_rare(w, v_now, 10000);
        ELSE
            v_rare := gather_parts(p_parts, v_seq, false, v_left + 1);
        END IF;
    ELSIF v_seq IS NULL THEN
        v_at := CASE WHEN v_time = 'finished' AND v_back THEN coalesce(w.finished_until, 'infinity')
                     WHEN v_time = 'finished' THEN coalesce(w.finished_from, '-infinity')
                     WHEN v_back THEN 'infinity'
                     ELSE '-infinity' END;
        v_seq := 0;
    END IF;
    seqs := '{}';
    looked := 0;
    LOOP
        v_some := next_in_list(w, v_time, v_back, v_at, v_seq, v_step, v_now, v_rare);
        v_last := cardinality(v_some.seqs);
        seqs := seqs || ARRAY(
            SELECT j.seq FROM unnest(v_some.seqs) WITH ORDINALITY AS u (seq, n)
              JOIN jobs j ON j.seq = u.seq
             WHERE is_wanted(j, w, v_now) AND (p_parts IS NULL OR j.part = ANY (p_parts))
             ORDER BY u.n LIMIT p_limit + 1 - cardinality(seqs));
        IF cardinality(seqs) > p_limit THEN
            next := seqs[p_limit];
            v_last := array_position(v_some.seqs, next);
            next_at := v_some.ats[v_last];
            looked := looked + v_last;
            seqs := seqs[1 : p_limit];
            RETURN;
        END IF;
        IF v_last < v_step THEN
            RETURN;
        END IF;
        v_at := v_some.ats[v_last];
        v_seq := v_some.seqs[v_last];
        v_left := v_left - v_step;
        looked := looked + v_step;
        EXIT WHEN v_left <= 0 OR cardinality(seqs) = p_limit OR clock_timestamp() > v_stop;
        v_step := least(4 * greatest(v_step, 125), v_left);
    END LOOP;
    next := v_seq;
    next_at := v_at;
    -- Of several calls that are one search the last one says so, also with a full page.
    IF cardinality(seqs) < p_limit OR (p_left IS NOT NULL AND v_left <= 0) THEN
        reached := v_at;
    END IF;
END $$;
