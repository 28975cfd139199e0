-- What people ask and order, and the chores.

-- part: columns
-- Of a job, as `job_of` in records.py reads them. $1: now, where the caller says it.
       jobs.seq, id, state, queue, task, priority, due, attempt, max_attempts, budget, claim_number,
       cancel_requested, lost, solo, worker, created_at, started_at, finished_at, gates, costs,
       expires_at, timeout, key, key_window, key_period,
       EXISTS (SELECT 1 FROM windlass.keys
                WHERE keys.key = jobs.key AND keys.seq = jobs.seq
                  AND (keys.until IS NULL
                       OR keys.until > (SELECT coalesce($1::timestamptz, clock_timestamp()))))
           AS key_held,
       missed_at, missed_why, backoff, tags, tenant, principal, correlation_id, trace, parent,
       throttled, on_failure, on_lost, progress, progress_note, reason, error_kind, error_message,
       error_traceback, result, payload, metadata,
       jobs.ready IS NOT DISTINCT FROM 4 AS blocked,
       (SELECT concat_ws(' ', replace(p.flow_id::text, '-', ''), p.number,
                         CASE WHEN jobs.added THEN 'added' END)
          FROM windlass.parts p WHERE p.id = jobs.part) AS place

-- name: get
SELECT
-- include: columns
  FROM windlass.jobs
 WHERE id = ANY ($2::uuid[]);

-- name: named
-- By the index of ids alone: at least one row, without an id where none is found. $3: from behind
-- the first one.
WITH met AS MATERIALIZED (
    SELECT id FROM windlass.jobs
     WHERE id >= $1::uuid AND id <= $2::uuid AND (id > $1::uuid OR NOT $3::boolean)
     ORDER BY id LIMIT $5::bigint
)
SELECT seen.looked, seen.after, found.id
  FROM (SELECT count(*) AS looked, (SELECT id FROM met ORDER BY id DESC LIMIT 1) AS after
          FROM met) AS seen
  LEFT JOIN LATERAL (
       SELECT id FROM met
        WHERE right(encode(uuid_send(id), 'hex'), length($4::text)) = $4::text) AS found ON true;

-- name: newest
WITH met AS MATERIALIZED (
    SELECT id, seq FROM windlass.jobs WHERE seq < $1::bigint ORDER BY seq DESC LIMIT $3::bigint
)
SELECT seen.looked, seen.after, found.id
  FROM (SELECT count(*) AS looked, min(seq) AS after FROM met) AS seen
  LEFT JOIN LATERAL (
       SELECT id FROM met
        WHERE right(encode(uuid_send(id), 'hex'), length($2::text)) = $2::text
        ORDER BY seq DESC) AS found ON true;

-- name: find
-- At least one row, without a job where none is found: next and reached stand in every row.
SELECT f.next, f.next_at, f.reached, f.looked,
-- include: columns
  FROM windlass.list_jobs(
           $1, $2, $3, $4, $5,
           ROW($6::smallint[], $7::text[], $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
               $19::timestamptz, $20::timestamptz, $21::timestamptz, $22::timestamptz,
               $23)::windlass.job_filter, $24,
           CASE WHEN $25 THEN ARRAY(SELECT p.id FROM windlass.flows f
                                      JOIN windlass.parts p ON p.flow = f.number
                                     WHERE f.id = $26::uuid AND NOT f.gone) END) AS f
  LEFT JOIN LATERAL windlass.read_jobs(f.seqs) AS jobs ON true
 ORDER BY jobs.seq DESC;

-- name: errors
SELECT complete, kind, frame, count, first, last, job, said, tasks, queues
  FROM windlass.error_groups($1, $2, $3, $4);

-- name: history
SELECT claim_number, attempt, verb, worker, started_at, ended_at, error_kind, error_message,
       error_traceback, metadata
  FROM windlass.history
 WHERE seq = (SELECT seq FROM windlass.jobs WHERE id = $1)
 ORDER BY claim_number;

-- name: count_all
SELECT queue, ready, scheduled, running, ended, retrying, oldest_due FROM windlass.count_all($1);

-- name: count_up_to
SELECT queue, ready, scheduled, running, ended, retrying, oldest_due
  FROM windlass.count_up_to($1, $2);

-- name: known_queues
-- Those that are listed whether they have jobs or not.
SELECT name, paused FROM windlass.queues WHERE paused OR settings IS NOT NULL;

-- name: pause
SELECT windlass.pause($1, $2, $3, $4);

-- name: next_due
SELECT windlass.next_due($1::text[]);

-- name: prune
SELECT windlass.prune($1, $2, $3, $4, $5, $6);

-- name: prune_rollups
SELECT windlass.prune_rollups($1, $2, $3);

-- name: compact_rollups
SELECT windlass.compact_rollups($1, $2, $3);

-- name: prune_gauges
SELECT windlass.prune_gauges($1, $2, $3);

-- name: compact_gauges
SELECT windlass.compact_gauges($1, $2, $3);

-- name: prune_audits
SELECT windlass.prune_audits($1, $2, $3);

-- name: prune_events
SELECT windlass.prune_events($1, $2, $3);

-- name: prune_workers
SELECT windlass.prune_workers($1, $2, $3);

-- name: now
SELECT coalesce($1::timestamptz, clock_timestamp());

-- name: rollups
SELECT minute, queue, task, verbs, counts, wait_from, wait, run_from, run
  FROM windlass.read_rollups($1, $2);

-- name: gauges
SELECT minute, source, readings FROM windlass.read_gauges($1, $2, $3);

-- name: promote
SELECT windlass.promote_due($1, $2, $3);

-- name: expire
SELECT windlass.expire_jobs($1, $2, $3);

-- name: forget_gates
SELECT windlass.forget_gates($1, $2, $3);

-- name: sweep_holds
SELECT windlass.sweep_holds();

-- name: sweep_traces
SELECT windlass.sweep_traces($1);

-- name: secret
SELECT value FROM windlass.secrets WHERE name = 'keys';

-- name: keep_secret
INSERT INTO windlass.secrets (name, value) VALUES ('keys', $1::text) ON CONFLICT DO NOTHING;

-- name: change_secret
UPDATE windlass.secrets SET value = $1::text WHERE name = 'keys' AND value = $2::text;

-- name: tasks
-- Waiting jobs by line and task, up to $1 of each line, and the running ones with the line -1. Each
-- line is read in the order of its index, or the server might walk through all ended jobs.
SELECT a.line, a.task, count(*) AS jobs
  FROM ((SELECT 0 AS line, j.task FROM windlass.jobs j WHERE j.ready = 0
          ORDER BY j.queue, j.due LIMIT $1)
        UNION ALL
        (SELECT 1, j.task FROM windlass.jobs j WHERE j.ready = 1
          ORDER BY j.queue, j.priority, j.due LIMIT $1)
        UNION ALL
        (SELECT 2, j.task FROM windlass.jobs j WHERE j.ready = 2
          ORDER BY j.lane, j.priority, j.due LIMIT $1)
        UNION ALL
        (SELECT 3, j.task FROM windlass.jobs j WHERE j.ready = 3
          ORDER BY j.queue, j.priority, j.due LIMIT $1)
        UNION ALL
        (SELECT 4, j.task FROM windlass.jobs j WHERE j.ready = 4 ORDER BY j.queue LIMIT $1)
        UNION ALL
        SELECT -1, j.task FROM windlass.jobs j WHERE j.state = 1) AS a
 GROUP BY a.line, a.task;
