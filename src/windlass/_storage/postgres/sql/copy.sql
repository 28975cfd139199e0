-- Everything out of one storage and into another.

-- name: dump
-- Columns as `job_of` in records.py reads them, and what else is stored of a job.
SELECT jobs.seq, id, state, queue, task, priority, due, attempt, max_attempts, budget,
       claim_number, cancel_requested, lost, solo, worker, created_at, started_at, finished_at,
       gates, costs, expires_at, timeout, jobs.key, held.seq IS NOT NULL AS key_held, missed_at,
       missed_why, backoff, tags, tenant, principal, correlation_id, trace, parent, throttled,
       on_failure, on_lost,
       progress, progress_note, reason, error_kind, error_message, error_traceback, result,
       payload, key_window, key_period, held.until AS key_until, ended_number, ended_verb, ended_by,
       metadata, ready, delay, expires, jobs.ready IS NOT DISTINCT FROM 4 AS blocked,
       (SELECT concat_ws(' ', replace(p.flow_id::text, '-', ''), p.number,
                         CASE WHEN jobs.added THEN 'added' END)
          FROM windlass.parts p WHERE p.id = jobs.part) AS place
  FROM windlass.dump_jobs($2, $3) AS jobs
  LEFT JOIN windlass.keys AS held
    ON held.key = jobs.key AND held.seq = jobs.seq
   AND (held.until IS NULL
        OR held.until > (SELECT coalesce($1::timestamptz, clock_timestamp())))
 ORDER BY jobs.seq;

-- name: dump_history
SELECT seq, claim_number, attempt, verb, worker, started_at, ended_at, error_kind, error_message,
       error_traceback, metadata
  FROM windlass.history WHERE seq = ANY ($1::bigint[]) ORDER BY seq, claim_number;

-- name: dump_logs
SELECT seq, claim_number, number, lines
  FROM windlass.logs WHERE seq = ANY ($1::bigint[]) ORDER BY seq, claim_number, number;

-- name: dump_flows
SELECT number, id, name, state, created_at, ended_at, key, cancelled, sealed, expires_at, expires,
       tenant, counts,
       (SELECT f.retry_rank FROM windlass.flows f WHERE f.number = r.number) AS retry_rank
  FROM windlass.read_flows(windlass.dump_flows($1, $2, $3)) AS r ORDER BY number;

-- name: restore_flows
SELECT windlass.restore_flows($1, $2);

-- name: parts_of_flows
SELECT f.id AS flow, p.number, p.id
  FROM windlass.flows f JOIN windlass.parts p ON p.flow = f.number
 WHERE f.id = ANY ($1::uuid[]);

-- name: restore_jobs
SELECT id FROM windlass.restore_jobs($1, $2);

-- name: restore_traces
SELECT windlass.restore_traces($1, $2);

-- name: restore_rollups
SELECT windlass.restore_rollups($1);

-- name: restore_queues
SELECT windlass.restore_queues($1);

-- name: restore_gates
SELECT windlass.restore_gates($1);

-- name: restore_audits
SELECT windlass.restore_audits($1);

-- name: restore_events
SELECT windlass.restore_events($1, $2, $3::uuid[], $4, $5, $6, $7);
