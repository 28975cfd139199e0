-- Who works here, who is believed dead, and who does the chores.

-- name: register
-- A repeated call finds its row. A row that has ended stays ended.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS at),
made AS (
    INSERT INTO windlass.workers (id, host, pid, version, queues, slots, lease, lock_boot,
                                  lock_device, lock_inode, tasks, clock, about, started_at,
                                  beat_at)
    SELECT $2, $3, $4, $5, $6::text[], $7, $8, $9, $10, $11, $12::text[], $13::timestamptz,
           $14, at, at
      FROM clock
    ON CONFLICT (id) DO NOTHING
)
SELECT at FROM clock;

-- name: beat
SELECT live, at, id, claim_number, seq, cancel_requested, duty FROM windlass.beat($1, $2, $3, $4);

-- name: assign
SELECT windlass.assign_duty($1, $2::text[], $3, $4);

-- name: cancel_requests
SELECT id, claim_number, seq FROM windlass.cancel_requests($1);

-- name: bury
SELECT windlass.bury($1, $2::text[], $3);

-- name: overdue
SELECT id FROM windlass.workers
 WHERE state = 'live'
   AND (SELECT coalesce($1::timestamptz, clock_timestamp())) - beat_at
       > lease * interval '1 microsecond'
 ORDER BY seq;

-- name: orphans
SELECT seq, id, claim_number, task, queue, attempt, max_attempts, budget, due, started_at, worker,
       timeout, lost, solo, backoff, missed_at, error_kind, error_message, tenant, principal,
       correlation_id, trace, tags, on_failure, on_lost,
       (SELECT concat_ws(' ', replace(p.flow_id::text, '-', ''), p.number,
                         CASE WHEN jobs.added THEN 'added' END)
          FROM windlass.parts p WHERE p.id = jobs.part) AS place
  FROM windlass.orphans($1) AS jobs;

-- name: leave
SELECT at, left_out, verdicts, verbs, cool_untils, cooleds
  FROM windlass.leave_worker($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
                             $17, $18, $19, $20, $21, $22, $23, $24, $25);

-- name: live
SELECT id, host, pid, version, queues, slots, lease, lock_boot, lock_device, lock_inode, tasks,
       clock, about
  FROM windlass.workers WHERE state = 'live' ORDER BY seq DESC;

-- name: workers
SELECT id, host, pid, version, queues, slots, lease, lock_boot, lock_device, lock_inode, tasks,
       clock, about, memory, duty, state, started_at, beat_at, ended_at,
       (SELECT count(*) FROM windlass.jobs WHERE jobs.worker = workers.id AND jobs.state = 1)
           AS running
  FROM windlass.workers
 ORDER BY seq DESC;

-- name: lead
-- One statement decides: it returns a row to the worker that leads from now on. A lease that ends far
-- ahead was written before the server's clock was set back.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS at)
INSERT INTO windlass.leaders AS held (role, worker, until)
SELECT $2, $3, at + $4::bigint * interval '1 microsecond' FROM clock
ON CONFLICT (role) DO UPDATE SET worker = excluded.worker, until = excluded.until
 WHERE held.worker = excluded.worker
    OR held.until <= (SELECT at FROM clock)
    OR held.until > (SELECT at FROM clock) + 2 * $4::bigint * interval '1 microsecond'
RETURNING true;

-- name: resign
DELETE FROM windlass.leaders WHERE worker = $1;
