-- Which jobs match, newest first, without reading all of them.

-- Whether these words stand in one of the texts, A and a being the same, and no further letters. The
-- payload is compared byte by byte, as if each were a letter: what is not UTF-8 cannot be
-- turned into text. One with a zero byte is no text at all: case counts there.
CREATE OR REPLACE FUNCTION mentions(p_words text, p_payload bytea, p_kind text, p_said text)
RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(strpos(lower(p_kind COLLATE "C"), lower(p_words COLLATE "C")), 0) > 0
        OR coalesce(strpos(lower(p_said COLLATE "C"), lower(p_words COLLATE "C")), 0) > 0
        OR CASE WHEN position('\x00'::bytea IN p_payload) > 0
                THEN position(convert_to(p_words, 'UTF8') IN p_payload) > 0
                ELSE strpos(lower(convert_from(p_payload, 'LATIN1') COLLATE "C"),
                            lower(convert_from(convert_to(p_words, 'UTF8'), 'LATIN1')
                                  COLLATE "C")) > 0 END
$$;

-- Whether a tag, in JSON, is one of those in a list, in JSON as the same encoder writes it.
CREATE OR REPLACE FUNCTION has_tag(p_tags text, p_tag text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (SELECT 1 FROM json_array_elements(p_tags::json) AS t (tag)
                    WHERE t.tag::text = p_tag)
$$;

-- Whether a job is asked for. The planner puts the expression in place of the call, and so only what
-- is asked about is read of a row. Expensive conditions come last.
CREATE OR REPLACE FUNCTION is_wanted(j jobs, w job_filter, p_now timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT (w.states IS NULL OR j.state = ANY (w.states))
       AND (w.shown IS NULL OR
            CASE WHEN j.state > 0
                 THEN ('{running,succeeded,failed,cancelled,discarded}'::text[])[j.state]
                 WHEN j.attempt > j.max_attempts - j.budget THEN 'retrying'
                 WHEN j.due > p_now OR j.ready IS NOT DISTINCT FROM 4 THEN 'scheduled' ELSE 'ready' END = ANY (w.shown))
       AND (w.queue IS NULL OR j.queue = w.queue)
       AND (w.task IS NULL OR j.task = w.task)
       AND (w.tenant IS NULL OR coalesce(j.tenant = w.tenant, false))
       AND (w.principal IS NULL OR coalesce(j.principal = w.principal, false))
       AND (w.key IS NULL OR coalesce(j.key = w.key, false))
       AND (w.correlation_id IS NULL OR coalesce(j.correlation_id = w.correlation_id, false))
       AND (w.parent IS NULL OR coalesce(j.parent = w.parent, false))
       AND (w.worker IS NULL OR coalesce(j.worker = w.worker, false))
       AND (w.created_from IS NULL OR j.created_at >= w.created_from)
       AND (w.created_until IS NULL OR j.created_at < w.created_until)
       AND (w.finished_from IS NULL OR coalesce(j.finished_at >= w.finished_from, false))
       AND (w.finished_until IS NULL OR coalesce(j.finished_at < w.finished_until, false))
       AND (w.error IS NULL OR coalesce(j.error_kind = w.error, false))
       AND (w.frame IS NULL OR (j.error_kind IS NOT NULL
                                AND coalesce(j.error_frame, '') = w.frame))
       AND (w.tag IS NULL OR (coalesce(strpos(j.tags, w.tag), 0) > 0 AND has_tag(j.tags, w.tag)))
       AND (w.words IS NULL OR mentions(w.words, j.payload, j.error_kind, j.error_message))
$$;

-- Up to p_most waiting jobs, among them all that are asked for by queue and by how people see them.
CREATE OR REPLACE FUNCTION gather_waiting(w job_filter, p_now timestamptz, p_most integer)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    -- In a line; and of those that wait for their time, up to when.
    v_stands boolean := w.shown IS NULL OR w.shown && '{ready,retrying}';
    v_until timestamptz := CASE WHEN w.shown IS NULL OR w.shown && '{scheduled,retrying}'
                                THEN 'infinity' ELSE p_now END;
BEGIN
    IF w.shown = '{retrying}' THEN
        IF w.queue IS NULL THEN
            RETURN ARRAY(SELECT j.seq FROM jobs j
                          WHERE j.ready IS NOT NULL AND j.attempt > j.max_attempts - j.budget
                          LIMIT p_most);
        END IF;
        RETURN ARRAY(SELECT j.seq FROM jobs j
                      WHERE j.ready IS NOT NULL AND j.attempt > j.max_attempts - j.budget
                        AND j.queue = w.queue LIMIT p_most);
    ELSIF w.queue IS NULL THEN
        RETURN ARRAY(
            SELECT a.seq
              FROM (SELECT j.seq FROM jobs j WHERE j.ready = 1 AND v_stands
                    UNION ALL SELECT j.seq FROM jobs j WHERE j.ready = 2 AND v_stands
                    UNION ALL SELECT j.seq FROM jobs j WHERE j.ready = 3 AND v_stands
                    UNION ALL SELECT j.seq FROM jobs j WHERE j.ready = 4
                    UNION ALL SELECT j.seq FROM jobs j WHERE j.ready = 0 AND j.due <= v_until) AS a
             LIMIT p_most);
    END IF;
    RETURN ARRAY(
        SELECT a.seq
          FROM (SELECT j.seq FROM jobs j WHERE j.queue = w.queue AND j.ready = 1 AND v_stands
                UNION ALL SELECT j.seq FROM jobs j
                           WHERE j.queue = w.queue AND j.ready = 3 AND v_stands
                UNION ALL SELECT j.seq FROM jobs j WHERE j.queue = w.queue AND j.ready = 4
                UNION ALL SELECT j.seq FROM jobs j
                           WHERE j.queue = w.queue AND j.ready = 0 AND j.due <= v_until
                -- Lane by lane: not from all that stand in lanes back to those of this queue.
                UNION ALL SELECT i.seq FROM lane_digests l, LATERAL (
                              SELECT j.seq FROM jobs j WHERE j.lane = l.lane AND j.ready = 2
                               LIMIT p_most) AS i
                           WHERE l.queue = w.queue AND v_stands) AS a
         LIMIT p_most);
END $$;

-- The same of ended jobs, by state, queue and when they ended; NULL: there are more than p_most. Queue
-- by queue, as in `prune`. Counted first, in the index alone: reading rows only to find that they
-- are too many is dear where they do not lie in memory.
CREATE OR REPLACE FUNCTION gather_ended(w job_filter, p_state smallint, p_most integer)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_queue text := '';
    v_queues text[] := '{}';
    v_from timestamptz := coalesce(w.finished_from, '-infinity');
    v_until timestamptz := coalesce(w.finished_until, 'infinity');
    v_room integer := p_most;
    v_seqs bigint[] := '{}';
BEGIN
    IF p_state = 3 AND w.queue IS NULL THEN
        -- What people look at most has an index that knows the numbers, too.
        v_seqs := ARRAY(SELECT j.seq FROM jobs j
                         WHERE j.state = 3 AND j.finished_at >= v_from AND j.finished_at < v_until
                         ORDER BY j.finished_at LIMIT p_most + 1);
        RETURN CASE WHEN cardinality(v_seqs) <= p_most THEN v_seqs END;
    END IF;
    LOOP
        IF w.queue IS NOT NULL THEN
            v_queue := w.queue;
        ELSE
            SELECT j.queue INTO v_queue FROM jobs j
             WHERE j.state >= 2 AND j.state = p_state AND j.queue > v_queue
             ORDER BY j.queue LIMIT 1;
            EXIT WHEN NOT FOUND;
        END IF;
        v_queues := v_queues || v_queue;
        v_room := v_room - (SELECT count(*)
                              FROM (SELECT 1 FROM jobs j
                                     WHERE j.state >= 2 AND j.state = p_state AND j.queue = v_queue
                                       AND j.finished_at >= v_from AND j.finished_at < v_until
                                     LIMIT v_room + 1) AS met);
        IF v_room < 0 THEN
            RETURN NULL;
        END IF;
        EXIT WHEN w.queue IS NOT NULL;
    END LOOP;
    FOREACH v_queue IN ARRAY v_queues LOOP
        v_seqs := v_seqs || ARRAY(
            SELECT j.seq FROM jobs j
             WHERE j.state >= 2 AND j.state = p_state AND j.queue = v_queue
               AND j.finished_at >= v_from AND j.finished_at < v_until);
    END LOOP;
    RETURN v_seqs;
END $$;

-- Where the states that are asked for are rare: all jobs in them, newest first. NULL: there are more
-- than p_most, or nothing is said about states.
CREATE OR REPLACE FUNCTION gather_rare(w job_filter, p_now timestamptz, p_most integer)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_states smallint[];
    v_state smallint;
    v_room integer;
    v_part bigint[];
    v_seqs bigint[] := '{}';
BEGIN
    v_states := ARRAY(
        SELECT s.state FROM generate_series(0, 5) AS s (state)
         WHERE (w.states IS NULL OR s.state = ANY (w.states))
           AND (w.shown IS NULL
                OR CASE WHEN s.state = 0 THEN w.shown && '{scheduled,ready,retrying}'
                        ELSE ('{running,succeeded,failed,cancelled,discarded}'::text[])[s.state]
                             = ANY (w.shown) END)
           AND (s.state >= 2 OR (w.finished_from IS NULL AND w.finished_until IS NULL)));
    IF cardinality(v_states) = 6 THEN
        RETURN NULL;
    END IF;
    -- The rare ones first: most often succeeded jobs are many.
    FOREACH v_state IN ARRAY ARRAY[1, 3, 4, 5, 0, 2]::smallint[] LOOP
        CONTINUE WHEN v_state <> ALL (v_states);
        v_room := p_most + 1 - cardinality(v_seqs);
        IF v_state >= 2 THEN
            v_part := gather_ended(w, v_state, v_room - 1);
        ELSIF v_state = 0 THEN
            v_part := gather_waiting(w, p_now, v_room);
        ELSIF w.worker IS NOT NULL THEN
            v_part := ARRAY(SELECT j.seq FROM jobs j
                             WHERE j.state = 1 AND j.worker = w.worker LIMIT v_room);
        ELSE
            v_part := ARRAY(SELECT j.seq FROM jobs j WHERE j.state = 1 LIMIT v_room);
        END IF;
        v_seqs := v_seqs || v_part;
        IF v_part IS NULL OR cardinality(v_seqs) > p_most THEN
            RETURN NULL;
        END IF;
    END LOOP;
    RETURN ARRAY(SELECT s.seq FROM unnest(v_seqs) AS s (seq) ORDER BY s.seq DESC);
END $$;

-- What an index finds though neither its state is rare nor it is new: the holder of a key, and what a
-- worker runs. Nothing, if these are more than p_most.
CREATE OR REPLACE FUNCTION gather_named(w job_filter, p_now timestamptz, p_most integer)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_seqs bigint[];
BEGIN
    IF w.key IS NULL AND w.worker IS NULL THEN
        RETURN '{}';
    END IF;
    v_seqs := ARRAY(SELECT k.seq FROM keys k WHERE k.key = w.key)
           || ARRAY(SELECT j.seq FROM jobs j WHERE j.state = 1 AND j.worker = w.worker
                     LIMIT p_most + 1);
    v_seqs := ARRAY(SELECT j.seq FROM jobs j
                     WHERE j.seq = ANY (v_seqs) AND is_wanted(j, w, p_now));
    RETURN CASE WHEN cardinality(v_seqs) > p_most THEN '{}' ELSE v_seqs END;
END $$;

-- Up to p_most jobs of these parts, newest first: the newest below p_seq, or with p_back = false the oldest
-- above it. Of each part and line as many, from the index, and of all the best.
CREATE OR REPLACE FUNCTION gather_parts(
    p_parts bigint[], p_seq bigint, p_back boolean, p_most integer
) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_back THEN
        RETURN ARRAY(
            SELECT i.seq FROM unnest(p_parts) AS p (id)
             CROSS JOIN LATERAL (
                   SELECT l.seq FROM generate_series(0, 6) AS line (ready)
                    CROSS JOIN LATERAL (
                          SELECT j.seq FROM jobs j
                           WHERE j.part = p.id AND j.ready = line.ready AND j.seq < p_seq
                           ORDER BY j.part DESC, j.ready DESC, j.seq DESC LIMIT p_most) AS l
                   UNION ALL
                   (SELECT j.seq FROM jobs j
                     WHERE j.part = p.id AND j.ready IS NULL AND j.seq < p_seq
                     ORDER BY j.part DESC, j.ready DESC, j.seq DESC LIMIT p_most)) AS i
             ORDER BY i.seq DESC LIMIT p_most);
    END IF;
    RETURN ARRAY(
        SELECT o.seq
          FROM (SELECT i.seq FROM unnest(p_parts) AS p (id)
                 CROSS JOIN LATERAL (
                       SELECT l.seq FROM generate_series(0, 6) AS line (ready)
                        CROSS JOIN LATERAL (
                              SELECT j.seq FROM jobs j
                               WHERE j.part = p.id AND j.ready = line.ready AND j.seq > p_seq
                               ORDER BY j.part, j.ready, j.seq LIMIT p_most) AS l
                       UNION ALL
                       (SELECT j.seq FROM jobs j
                         WHERE j.part = p.id AND j.ready IS NULL AND j.seq > p_seq
                         ORDER BY j.part, j.ready, j.seq LIMIT p_most)) AS i
                 ORDER BY i.seq LIMIT p_most) AS o
         ORDER BY o.seq DESC);
END $$;

-- `AdminStore.find`: the numbers of up to p_limit jobs, newest first, below p_before (NULL: from the
-- newest on); next and reached as in Page in protocol/lists/job_list.py.
--
-- Looks at the rare ones, or walks down the table: a bounded number of rows, for a bounded time. What
-- is named (`gather_named`) comes with the first page, at any position, and with no other.
--
-- p_parts: of jobs of these parts alone, which an index knows (NULL: of any).
-- p_left: rows that may still be looked at, where several calls are one search. looked: those up to
-- next, counted then alone.
CREATE OR REPLACE FUNCTION find_jobs(
    p_at timestamptz, p_before bigint, p_limit integer, w job_filter,
    p_left integer DEFAULT NULL, p_parts bigint[] DEFAULT NULL,
    OUT seqs bigint[], OUT next bigint, OUT reached timestamptz, OUT looked integer
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_stop timestamptz := clock_timestamp() + interval '100 milliseconds';
    v_before bigint := coalesce(p_before, 9223372036854775807);
    v_first bigint := v_before;
    v_left integer := coalesce(p_left, CASE WHEN w.words IS NULL THEN 20000 ELSE 2000 END);
    v_step integer := least(CASE WHEN w.words IS NULL THEN 500 ELSE 100 END, v_left);
    v_rare bigint[];
    v_all bigint[];
    v_named bigint[] := '{}';
    v_room integer := p_limit;
    v_part bigint[];
    v_edge record;
BEGIN
    seqs := '{}';
    IF p_parts IS NULL THEN
        v_rare := gather_rare(w, v_now, 10000);
    ELSE
        v_rare := gather_parts(p_parts, v_before, true, v_left + 1);
    END IF;
    IF v_rare IS NULL THEN
        v_named := gather_named(w, v_now, p_limit);
        v_room := p_limit - CASE WHEN p_before IS NULL THEN cardinality(v_named) ELSE 0 END;
    ELSE
        v_rare := ARRAY(SELECT r.seq FROM unnest(v_rare) WITH ORDINALITY AS r (seq, n)
                         WHERE r.seq < v_before ORDER BY r.n);
        v_all := v_rare;
    END IF;
    looked := 0;
    LOOP
        -- The last one of the next few. None: these are all.
        IF v_rare IS NULL THEN
            SELECT j.seq, j.created_at INTO v_edge FROM jobs j WHERE j.seq < v_before
             ORDER BY j.seq DESC OFFSET v_step - 1 LIMIT 1;
            seqs := seqs || ARRAY(
                SELECT j.seq FROM jobs j
                 WHERE j.seq < v_before AND j.seq >= coalesce(v_edge.seq, 0)
                   AND is_wanted(j, w, v_now) AND j.seq <> ALL (v_named)
                 ORDER BY j.seq DESC LIMIT v_room + 1 - cardinality(seqs));
        ELSE
            v_part := v_rare[1 : v_step];
            v_rare := v_rare[v_step + 1 :];
            SELECT j.seq, j.created_at INTO v_edge FROM jobs j
             WHERE j.seq = v_part[v_step] AND v_rare <> '{}';
            seqs := seqs || ARRAY(
                SELECT j.seq FROM jobs j WHERE j.seq = ANY (v_part) AND is_wanted(j, w, v_now)
                 ORDER BY j.seq DESC LIMIT v_room + 1 - cardinality(seqs));
        END IF;
        reached := v_edge.created_at;
        next := v_edge.seq;
        IF cardinality(seqs) > v_room THEN
            reached := NULL;
            next := coalesce(seqs[v_room], seqs[1] + 1);
            seqs := seqs[1 : v_room];
            IF p_left IS NULL THEN
                NULL;
            ELSIF v_all IS NULL THEN
                looked := (SELECT count(*) FROM jobs j WHERE j.seq < v_first AND j.seq >= next);
            ELSE
                looked := (SELECT count(*) FROM unnest(v_all) AS r (seq) WHERE r.seq >= next);
            END IF;
            EXIT;
        END IF;
        v_left := v_left - v_step;
        looked := looked + v_step;
        EXIT WHEN v_edge.seq IS NULL OR v_left <= 0 OR clock_timestamp() > v_stop;
        v_before := v_edge.seq;
        v_step := least(4 * v_step, v_left);
    END LOOP;
    IF p_before IS NULL THEN
        seqs := seqs || v_named;
    END IF;
END $$;

-- Jobs by their numbers, newest first.
CREATE OR REPLACE FUNCTION read_jobs(p_seqs bigint[]) RETURNS SETOF jobs
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT j.* FROM jobs j WHERE j.seq = ANY (p_seqs) ORDER BY j.seq DESC;
END $$;
