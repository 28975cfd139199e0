-- Ending claims.

-- name: claims
-- The rows that transitions name. Whether their claims still hold is decided after, in the same
-- write transaction; no other write can come between. The last but one: what its end frees, 1 for a key
-- and perhaps units of limits, otherwise its limits as bytes, or nothing.
SELECT seq, state, claim_number, cancel_requested, queue, task, worker, due, started_at,
       iif(key IS NULL, CAST(limits AS BLOB), 1), part
  FROM jobs
 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: details
-- What everything but a plain success must know besides, by number.
SELECT seq, attempt, priority, key, key_window, limits, missed_at, key_spent
  FROM jobs
 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: ended
SELECT ended_number, ended_verb, ended_by FROM jobs WHERE seq = ?1;

-- name: succeed
UPDATE jobs
   SET state = 2, finished_at = ?2, ended_number = claim_number, ended_verb = 'succeed',
       ended_by = ?3, result = ?4, lost = 0, solo = 0, missed_at = NULL, error_kind = NULL,
       error_message = NULL, error_traceback = NULL, metadata = NULL
 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: succeed_one
UPDATE jobs
   SET state = 2, finished_at = ?2, ended_number = claim_number, ended_verb = 'succeed',
       ended_by = ?3, result = ?4, lost = 0, solo = 0, missed_at = NULL, error_kind = NULL,
       error_message = NULL, error_traceback = NULL, metadata = NULL
 WHERE seq = ?1;

-- part: end_of_run
-- ?13: it waits again after its handler was entered, so it has no expiry any more.
UPDATE jobs
   SET state = ?2, ready = ?3, lane = ?4, due = ?5, attempt = ?6, finished_at = ?7,
       ended_number = claim_number, ended_verb = ?8, ended_by = ?9, lost = ?10, solo = ?11,
       missed_at = ?12, expires_at = iif(?13, NULL, expires_at), key_spent = key_spent OR ?13,
       result = NULL, throttled = throttled + (?8 = 'throttle'), metadata = NULL,

-- name: end
-- Any verb but success, without an error: the last one stays. Why it was missed (?14)
-- says something only while missed_at does.
-- include: end_of_run
       missed_why = coalesce(?14, missed_why)
 WHERE seq = ?1;

-- name: end_with_error
-- include: end_of_run
       error_kind = ?14, error_message = ?15, error_traceback = ?16, error_frame = ?17
 WHERE seq = ?1;

-- name: remember
INSERT INTO history (seq, claim_number, attempt, verb, worker, started_at, ended_at, error_kind,
                     error_message, error_traceback, metadata)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11);

-- name: note_metadata
UPDATE jobs SET metadata = ?2 WHERE seq = ?1;

-- name: forget_old
-- Of those with an error, or (?3) without, all but the newest ?2.
DELETE FROM history
 WHERE seq = ?1
   AND claim_number IN (SELECT claim_number FROM history
                         WHERE seq = ?1 AND (error_kind IS NULL) = ?3
                         ORDER BY claim_number DESC LIMIT -1 OFFSET ?2);

-- name: delete_jobs
DELETE FROM jobs WHERE seq IN (SELECT value FROM json_each(?1));

-- name: delete_history
DELETE FROM history WHERE seq IN (SELECT value FROM json_each(?1));
