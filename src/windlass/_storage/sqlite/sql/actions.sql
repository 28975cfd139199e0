-- What people order, and the record of who did.

-- part: request
-- A job as an order finds it: columns as `RequestRow` in admin/action_effects.py.
SELECT jobs.id, jobs.seq, jobs.state, jobs.due, jobs.queue, jobs.priority, jobs.solo,
       CAST(jobs.limits AS BLOB), jobs.key, jobs.key_window, jobs.key_period, jobs.lane, jobs.part,
       jobs.flow_state

-- name: asked
-- include: request
  FROM jobs
 WHERE id IN (SELECT unhex(value) FROM json_each(?1));

-- name: members_after
-- The next ?3 members of the part ?1 behind the job ?2.
-- include: request
  FROM jobs
 WHERE jobs.part = ?1 AND jobs.seq > ?2
 ORDER BY jobs.seq LIMIT ?3;

-- name: requeue
UPDATE jobs
   SET state = 0, ready = ?2, lane = ?3, due = ?4, max_attempts = attempt + budget,
       expires_at = NULL, finished_at = NULL, missed_at = NULL, reason = NULL,
       cancel_requested = 0, lost = 0, solo = 0, key_spent = 1, flow_state = ?5
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
