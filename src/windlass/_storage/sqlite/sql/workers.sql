-- Who works here, who is believed dead, and who does the chores.

-- name: register
-- A repeated call finds its row. A row that has ended stays ended.
INSERT INTO workers (id, host, pid, version, queues, slots, lease, beat_boot, beat_since_boot,
                     lock_boot, lock_device, lock_inode, started_at, beat_at, tasks, clock,
                     about)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13, ?14, ?15, ?16)
ON CONFLICT (id) DO NOTHING;

-- name: beat
UPDATE workers
   SET beat_at = ?2, beat_boot = ?3, beat_since_boot = ?4, memory = coalesce(?5, memory)
 WHERE id = ?1 AND state = 'live'
RETURNING duty;

-- name: assign
-- A worker with the duty to stop may be stopping.
UPDATE workers SET duty = ?2 WHERE id = ?1 AND state = 'live' AND duty NOT IN (?2, 'stop')
RETURNING 1;

-- name: duty
SELECT duty FROM workers WHERE id = ?1 AND state = 'live';

-- name: holding
SELECT id, claim_number, seq, cancel_requested FROM jobs
 WHERE worker = ?1 AND state = 1 ORDER BY seq;

-- name: cancel_requests
-- A worker holds no more claims than it has slots: reading them all is cheap.
SELECT id, claim_number, seq FROM jobs
 WHERE worker = ?1 AND state = 1 AND cancel_requested = 1 ORDER BY seq;

-- name: end
UPDATE workers SET state = ?2, ended_at = ?3 WHERE id = ?1 AND state = 'live'
RETURNING id;

-- name: overdue
-- A beat of another boot is of a machine that was started again since. Where boots have no names,
-- a beat far ahead of now is one too.
SELECT id FROM workers
 WHERE state = 'live' AND (beat_boot <> ?1 OR abs(?2 - beat_since_boot) > lease)
 ORDER BY seq;

-- name: next_running_worker
SELECT worker FROM jobs WHERE state = 1 AND worker > ?1 ORDER BY worker LIMIT 1;

-- name: is_live
SELECT 1 FROM workers WHERE id = ?1 AND state = 'live';

-- name: claims_of
-- Columns as of `best` and `extras` in claim.sql, then what a claim knows by itself.
SELECT seq, id, claim_number, task, x'', attempt, max_attempts, budget, due, timeout,
       key, key_window, lost, solo, backoff, missed_at, error_kind, error_message, tenant,
       principal, correlation_id, trace, tags, on_failure, on_lost, queue,
       started_at, worker, part
  FROM jobs
 WHERE worker = ?1 AND state = 1
 ORDER BY started_at, seq LIMIT ?2;

-- name: held
-- What releasing them must know.
SELECT id, claim_number, seq, lost, solo FROM jobs WHERE worker = ?1 AND state = 1 ORDER BY seq;

-- name: workers
SELECT id, host, pid, version, queues, slots, lease, lock_boot, lock_device, lock_inode, tasks,
       clock, about, state, started_at, beat_at, ended_at, memory, duty,
       (SELECT count(*) FROM jobs WHERE jobs.worker = workers.id AND jobs.state = 1)
  FROM workers
 ORDER BY seq DESC;

-- name: live
SELECT id FROM workers WHERE state = 'live';

-- name: live_starts
SELECT id, host, pid, version, queues, slots, lease, lock_boot, lock_device, lock_inode, tasks,
       clock, about
  FROM workers WHERE state = 'live' ORDER BY seq DESC;

-- name: prune_workers
DELETE FROM workers WHERE seq IN (
    SELECT seq FROM workers
     WHERE ended_at < ?1
       AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.worker = workers.id AND jobs.state = 1)
     ORDER BY seq LIMIT ?2
)
RETURNING id;

-- name: lead
-- One statement decides: it returns a row to the worker that leads from now on.
INSERT INTO leaders (role, worker, until_boot, until_since_boot) VALUES (?1, ?2, ?3, ?4 + ?5)
ON CONFLICT (role) DO UPDATE
   SET worker = excluded.worker, until_boot = excluded.until_boot,
       until_since_boot = excluded.until_since_boot
 WHERE worker = excluded.worker OR until_boot <> excluded.until_boot
    OR until_since_boot <= ?4 OR until_since_boot > ?4 + 2 * ?5
RETURNING 1;

-- name: resign
DELETE FROM leaders WHERE worker = ?1;
