-- Giving ready jobs to workers.

-- name: is_live
-- No row, or whether flows are to be settled at ?2: as `is_unsettled` in flows.sql, without a
-- statement of its own.
SELECT EXISTS (SELECT 1 FROM parts WHERE due = 1)
    OR EXISTS (SELECT 1 FROM flows WHERE swept_part > 0)
    OR EXISTS (SELECT 1 FROM flows
                WHERE expires_at IS NOT NULL AND cancelled = 0 AND ended_at IS NULL
                  AND expires_at <= ?2)
  FROM workers WHERE id = ?1 AND state = 'live';

-- name: look
-- What a claim must know about one queue, each by one look into an index: is it paused, does it
-- rest, how many may run, when is the next job due, are there lanes, are there solo jobs.
SELECT (SELECT paused FROM queues WHERE name = ?1),
       (SELECT cool_until FROM queues WHERE name = ?1),
       (SELECT max_running FROM queues WHERE name = ?1),
       (SELECT due FROM jobs WHERE queue = ?1 AND ready = 0 ORDER BY due LIMIT 1),
       EXISTS (SELECT 1 FROM bays WHERE queue = ?1),
       EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND ready = 3);

-- name: due
-- Limits as bytes, here and below: what is no text must not fail the whole statement.
SELECT due, seq, priority, solo, CAST(limits AS BLOB), queue FROM jobs
 WHERE queue = ?1 AND ready = 0 AND due <= ?2 AND (missed_at IS NULL OR due <= ?4)
 ORDER BY due, seq LIMIT ?3;

-- name: due_after
SELECT due FROM jobs WHERE queue = ?1 AND ready = 0 AND due > ?2 ORDER BY due LIMIT 1;

-- name: next_due
SELECT due FROM jobs WHERE queue = ?1 AND ready = 0 ORDER BY due LIMIT 1;

-- name: due_anywhere
SELECT due, seq, priority, solo, CAST(limits AS BLOB), queue FROM jobs
 WHERE ready = 0 AND due <= ?1 AND missed_at IS NULL
 ORDER BY due, seq LIMIT ?2;

-- name: next_due_anywhere
SELECT due FROM jobs WHERE ready = 0 ORDER BY due LIMIT 1;

-- name: make_ready
UPDATE jobs SET ready = 1 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: make_solo
UPDATE jobs SET ready = 3 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: make_ready_in_lane
UPDATE jobs SET ready = 2, lane = ?2 WHERE seq = ?1;

-- name: make_ready_in_lanes
UPDATE jobs SET ready = 2, lane = column2 FROM (VALUES (?, ?)) AS given WHERE seq = column1;

-- part: claimed
-- Ready jobs as they will be when they are claimed, and whether there is more to know about one (see
-- `extras`): most carry nothing special, and every column costs. Reading first and writing then is
-- faster than RETURNING.
SELECT seq, id, claim_number + 1, task, payload, attempt + 1, max_attempts, budget, due, timeout,
       expires_at,
       coalesce(key, error_kind, correlation_id, principal, tenant, trace, tags, backoff, missed_at,
                on_failure, on_lost) IS NOT NULL OR lost > 0 OR solo > 0,
       part

-- name: best
-- The best of a queue.
-- include: claimed
  FROM jobs
 WHERE queue = ?1 AND ready = 1
 ORDER BY priority, due, seq LIMIT ?2;

-- name: chosen
-- Jobs that were chosen before.
-- include: claimed
  FROM jobs
 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: extras
SELECT seq, key, key_window, lost, solo, backoff, missed_at, error_kind, error_message, tenant,
       principal, correlation_id, trace, tags, on_failure, on_lost
  FROM jobs
 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: start
UPDATE jobs
   SET state = 1, ready = NULL, lane = NULL, attempt = attempt + 1,
       claim_number = claim_number + 1, started_at = ?1, worker = ?2, cancel_requested = 0,
       progress = NULL, progress_note = NULL
 WHERE seq IN (SELECT value FROM json_each(?3));

-- name: ready_after
-- The common line of a queue after a place in it.
SELECT priority, due, seq, expires_at FROM jobs
 WHERE queue = ?1 AND ready = 1 AND (priority, due, seq) > (?2, ?3, ?4)
 ORDER BY priority, due, seq LIMIT ?5;

-- name: solo_after
SELECT priority, due, seq, expires_at, CAST(limits AS BLOB) FROM jobs
 WHERE queue = ?1 AND ready = 3 AND (priority, due, seq) > (?2, ?3, ?4)
 ORDER BY priority, due, seq LIMIT ?5;

-- name: waiting
-- What ending them before a claim must know.
SELECT seq, id, lane, key, key_window, part, flow_state FROM jobs
 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: expired
SELECT seq FROM jobs
 WHERE ready IS NOT NULL AND expires_at IS NOT NULL AND expires_at <= ?1
 ORDER BY expires_at LIMIT ?2;
