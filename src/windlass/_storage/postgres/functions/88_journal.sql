-- Log lines of runs and events of jobs.

-- All that is stored beside the rows of jobs, which are deleted. Nearly always that is little, and a
-- look into three indexes.
CREATE OR REPLACE FUNCTION forget_traces(p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM history h WHERE h.seq = ANY (p_seqs);
    DELETE FROM logs l WHERE l.seq = ANY (p_seqs);
    DELETE FROM events e WHERE e.seq = ANY (p_seqs);
END $$;

-- `JournalStore.append_logs`. Arrays side by side. A job may be deleted in the moment in which its
-- last words come: what is left behind then goes with `sweep_traces`.
CREATE OR REPLACE FUNCTION append_logs(
    p_ids uuid[], p_seqs bigint[], p_claim_numbers integer[], p_numbers integer[], p_lines text[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- They wait for no disk.
    PERFORM commit_durably(false);
    INSERT INTO logs (seq, claim_number, number, lines)
    SELECT t.seq, t.claim_number, t.number, t.lines
      FROM unnest(p_ids, p_seqs, p_claim_numbers, p_numbers, p_lines)
        AS t (id, seq, claim_number, number, lines)
      JOIN jobs j ON j.seq = t.seq AND j.id = t.id
     ORDER BY t.seq, t.claim_number, t.number
    ON CONFLICT DO NOTHING;
END $$;

-- `JournalStore.logs`.
CREATE OR REPLACE FUNCTION read_logs(p_id uuid, p_claim_number integer, p_number integer)
RETURNS TABLE (seq bigint, claim_number integer, number integer, lines text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT l.seq, l.claim_number, l.number, l.lines FROM jobs j JOIN logs l ON l.seq = j.seq
     WHERE j.id = p_id AND (l.claim_number, l.number) > (p_claim_number, p_number)
     ORDER BY l.claim_number, l.number;
END $$;

-- `JournalStore.append_events`. Arrays side by side.
CREATE OR REPLACE FUNCTION append_events(
    p_ats timestamptz[], p_kinds text[], p_ids uuid[], p_tasks text[], p_queues text[],
    p_workers text[], p_attempts integer[]
) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    PERFORM commit_durably(false);
    INSERT INTO events (at, seq, attempt, kind, task, queue, worker)
    SELECT t.at, j.seq, t.attempt, t.kind, t.task, t.queue, t.worker
      FROM unnest(p_ats, p_kinds, p_ids, p_tasks, p_queues, p_workers, p_attempts)
           WITH ORDINALITY AS t (at, kind, id, task, queue, worker, attempt, n)
      JOIN jobs j ON j.id = t.id
     ORDER BY t.n;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;

-- `JournalStore.events`, of one job or (NULL) of all. The number of rows is the caller's bound, and
-- each order reads its index from its own end.
CREATE OR REPLACE FUNCTION read_events(
    p_since timestamptz, p_until timestamptz, p_limit bigint, p_id uuid,
    p_newest boolean DEFAULT false
) RETURNS TABLE (
    at timestamptz, kind text, id uuid, task text, queue text, worker text, attempt integer
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    IF p_id IS NULL AND p_newest THEN
        RETURN QUERY
        SELECT e.at, e.kind, j.id, e.task, e.queue, e.worker, e.attempt
          FROM events e JOIN jobs j ON j.seq = e.seq
         WHERE e.at >= p_since AND e.at < p_until ORDER BY e.at DESC, e.number DESC LIMIT p_limit;
    ELSIF p_newest THEN
        RETURN QUERY
        SELECT e.at, e.kind, p_id, e.task, e.queue, e.worker, e.attempt
          FROM events e
         WHERE e.seq = (SELECT j.seq FROM jobs j WHERE j.id = p_id)
           AND e.at >= p_since AND e.at < p_until
         ORDER BY e.at DESC, e.number DESC LIMIT p_limit;
    ELSIF p_id IS NULL THEN
        RETURN QUERY
        SELECT e.at, e.kind, j.id, e.task, e.queue, e.worker, e.attempt
          FROM events e JOIN jobs j ON j.seq = e.seq
         WHERE e.at >= p_since AND e.at < p_until ORDER BY e.at, e.number LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT e.at, e.kind, p_id, e.task, e.queue, e.worker, e.attempt
          FROM events e
         WHERE e.seq = (SELECT j.seq FROM jobs j WHERE j.id = p_id)
           AND e.at >= p_since AND e.at < p_until
         ORDER BY e.at, e.number LIMIT p_limit;
    END IF;
END $$;

-- `MaintenanceStore.prune_events`.
CREATE OR REPLACE FUNCTION prune_events(p_at timestamptz, p_older bigint, p_limit integer)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    -- A subquery could be run again for every row it is joined with, and each time take others.
    WITH old AS MATERIALIZED (
        SELECT o.at, o.number FROM events o
         WHERE o.at < coalesce(p_at, clock_timestamp()) - p_older * interval '1 microsecond'
         ORDER BY o.at, o.number LIMIT p_limit FOR UPDATE SKIP LOCKED)
    DELETE FROM events e USING old WHERE e.at = old.at AND e.number = old.number;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;

-- What was left behind by jobs that are gone: everything about those before the oldest one that is
-- there. A chunk missed now is before the oldest one some day.
CREATE OR REPLACE FUNCTION sweep_traces(p_limit integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_seqs bigint[];
BEGIN
    v_seqs := ARRAY(
        SELECT a.seq
          FROM (SELECT coalesce(min(j.seq), 9223372036854775807) AS seq FROM jobs j) AS oldest,
               LATERAL (SELECT l.seq FROM logs l WHERE l.seq < oldest.seq
                        UNION ALL SELECT e.seq FROM events e WHERE e.seq < oldest.seq) AS a
         LIMIT p_limit);
    IF v_seqs <> '{}' THEN
        PERFORM forget_traces(v_seqs);
    END IF;
    RETURN cardinality(v_seqs);
END $$;
