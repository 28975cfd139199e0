-- What people order, and the record of who did.

-- name: asked
-- A job as an order finds it: columns as `Asked` in changes.py.
SELECT id, seq, state, due, queue, priority, solo, CAST(limits AS BLOB), key, key_window,
       key_period, lane
  FROM jobs
 WHERE id IN (SELECT unhex(value) FROM json_each(?1));

-- name: requeue
UPDATE jobs
   SET state = 0, ready = ?2, lane = ?3, due = ?4, max_attempts = attempt + budget,
       expires_at = NULL, finished_at = NULL, missed_at = NULL, reason = NULL,
       cancel_requested = 0, lost = 0, solo = 0, key_spent = 1
 WHERE seq = ?1;

-- name: discard
UPDATE jobs SET state = 5, finished_at = ?2, reason = ?3 WHERE seq = ?1;

-- name: move
UPDATE jobs SET due = ?2, ready = ?3, lane = ?4, queue = ?5, priority = ?6 WHERE seq = ?1;

-- name: answers
SELECT answers FROM audits WHERE id = ?1;

-- name: keep
-- Once, however often the order is said.
INSERT INTO audits (id, at, who, what, subject, detail, count, answers)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (id) DO NOTHING;

-- name: audits
SELECT number, id, who, what, subject, detail, at, count FROM audits
 WHERE number < ?1 ORDER BY number DESC LIMIT ?2;

-- name: audits_of
SELECT number, id, who, what, subject, detail, at, count FROM audits
 WHERE subject = ?3 AND number < ?1 ORDER BY number DESC LIMIT ?2;

-- name: prune_audits
DELETE FROM audits WHERE number IN (
    SELECT number FROM audits WHERE at < ?1 ORDER BY at LIMIT ?2
);
