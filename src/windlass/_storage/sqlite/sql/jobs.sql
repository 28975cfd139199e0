-- Storing jobs, and what else happens to them outside of a claim.

-- name: insert
-- An id that is already stored is a repeated call: the client makes the ids.
INSERT INTO jobs (
    id, queue, task, ready, lane, priority, due, max_attempts, budget, created_at, expires_at,
    timeout, key, key_window, key_period, limits, backoff, tags, tenant, principal,
    correlation_id, trace, parent, on_failure, on_lost, payload
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: insert_plain
-- Most jobs carry nothing special, and every bound value costs.
INSERT INTO jobs (id, queue, task, ready, priority, due, max_attempts, budget, created_at, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: insert_limited
-- The same with limits.
INSERT INTO jobs (id, queue, task, ready, priority, due, max_attempts, budget, created_at, payload,
                  lane, limits)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: is_stored
SELECT task, payload, key FROM jobs WHERE id = ?1;

-- name: number_of
SELECT seq FROM jobs WHERE id = ?1;

-- name: limit_names
SELECT name FROM limits;

-- name: key_holder
-- And whether it is a job of this task, and waits past its expiry, told here: what is no text must
-- not be read.
SELECT keys.seq, jobs.id, keys.until, jobs.task = ?2,
       jobs.state = 0 AND jobs.expires_at <= ?3 AND jobs.key_window <> 'for_a_time'
  FROM keys JOIN jobs USING (seq)
 WHERE keys.key = ?1;

-- name: standing
-- A holder, for a job that replaces it; no row if it does not wait, or waits for its flow.
SELECT due, queue, priority, solo, lane, CAST(limits AS BLOB) FROM jobs
 WHERE seq = ?1 AND state = 0 AND flow_state IS NULL;

-- name: put_off
UPDATE jobs SET due = ?2, ready = ?3, lane = ?4, expires_at = ?5 WHERE seq = ?1;

-- name: replace
UPDATE jobs
   SET due = ?2, ready = ?3, lane = ?4, expires_at = ?5, limits = ?6, principal = ?7,
       correlation_id = ?8, trace = ?9, payload = ?10
 WHERE seq = ?1;

-- name: take_key
INSERT INTO keys (key, seq, until) VALUES (?1, ?2, ?3);

-- name: free_key
-- By its holder only: after a window has passed another job may hold the key.
DELETE FROM keys WHERE key = ?1 AND seq = ?2;

-- name: free_passed_key
DELETE FROM keys WHERE key = ?1 AND until <= ?2;

-- name: by_ids
-- For cancel.
SELECT id, seq, state
  FROM jobs
 WHERE id IN (SELECT unhex(value) FROM json_each(?1));

-- name: request_cancel
UPDATE jobs SET cancel_requested = 1 WHERE seq = ?1;

-- name: end_waiting
-- A job that never ran, or will not run again: cancelled or discarded before its claim.
UPDATE jobs
   SET state = ?2, ready = NULL, lane = NULL, finished_at = ?3, reason = ?4,
       due = iif(flow_state = 1, created_at, due), flow_state = NULL
 WHERE seq = ?1;

-- name: explain_failure
UPDATE jobs
   SET error_kind = 'Damaged', error_message = ?2, error_traceback = '', error_frame = ''
 WHERE seq = ?1;

-- name: report
UPDATE jobs SET progress = ?3, progress_note = ?4
 WHERE seq = ?1 AND claim_number = ?2 AND +state = 1;

-- name: settled
SELECT id, state, result, error_kind, error_message, reason
  FROM jobs
 WHERE id IN (SELECT unhex(value) FROM json_each(?1));

-- name: active
-- One queue; ?2 is the instant. Every part but the last is one look into an index; that one reads
-- what runs, which is no more than the slots of all workers.
SELECT (EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND ready = 1)
        OR EXISTS (SELECT 1 FROM lanes WHERE queue = ?1)
        OR EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND ready = 3)
        OR EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND ready = 0 AND due <= ?2))
   AND NOT EXISTS (SELECT 1 FROM queues WHERE name = ?1 AND paused)
    OR EXISTS (SELECT 1 FROM jobs WHERE state = 1 AND queue = ?1);

-- name: outlook
-- One queue: when time alone makes something claimable, after now.
SELECT CASE WHEN (SELECT paused FROM queues WHERE name = ?1) THEN NULL
            WHEN (SELECT cool_until FROM queues WHERE name = ?1) > ?2
            THEN (SELECT cool_until FROM queues WHERE name = ?1)
            ELSE (SELECT min(at)
                    FROM (SELECT (SELECT due FROM jobs WHERE queue = ?1 AND ready = 0 AND due > ?2
                                   ORDER BY due LIMIT 1) AS at
                          UNION ALL
                          SELECT (SELECT opens_at FROM bays
                                   WHERE queue = ?1 AND opens_at > 0 AND opens_at > ?2
                                   ORDER BY opens_at LIMIT 1)))
       END;

-- name: rests
SELECT 1 FROM queues WHERE name = ?1 AND NOT paused AND cool_until > ?2;

-- name: claimable
-- One queue: anything, and anything that runs alone. Every part is one look into an index, but
-- what runs, which is counted where the queue has a bound, and `expired_heads`, among as
-- many as a claim looks at.
SELECT EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND ready = 1)
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND ready = 0 AND due <= ?2)
    OR EXISTS (SELECT 1 FROM bays WHERE queue = ?1 AND opens_at = 0)
    OR EXISTS (SELECT 1 FROM bays WHERE queue = ?1 AND opens_at > 0 AND opens_at <= ?2)
    OR EXISTS (SELECT 1
                 FROM (SELECT seq, lane FROM jobs
                        WHERE queue = ?1 AND ready = 2 AND expires_at IS NOT NULL
                          AND expires_at <= ?2
                        ORDER BY expires_at LIMIT 500) AS late
                CROSS JOIN lanes ON lanes.id = late.lane AND lanes.head_seq = late.seq),
       EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND ready = 3)
 WHERE NOT EXISTS (SELECT 1 FROM queues
                    WHERE name = ?1
                      AND (paused OR cool_until > ?2
                           OR (max_running IS NOT NULL AND max_running <=
                               (SELECT count(*) FROM jobs WHERE state = 1 AND queue = ?1))));
