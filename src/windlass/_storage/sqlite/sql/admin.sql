-- What people ask and order, and the chores.

-- name: history
SELECT claim_number, attempt, verb, worker, started_at, ended_at, error_kind, error_message,
       error_traceback, metadata
  FROM history
 WHERE seq = (SELECT seq FROM jobs WHERE id = ?1)
 ORDER BY claim_number;

-- name: prunable
-- From one queue to the next by the index, and of each what ended before ?2, or before what ?3
-- says of it: an object of queues. Not what ended before ?5 and ?6: only members of flows stay there.
-- The literal lets the partial index be used for a state that is bound.
WITH RECURSIVE ended (name) AS (
    SELECT (SELECT min(queue) FROM jobs WHERE state >= 2 AND state = ?1)
    UNION ALL
    SELECT (SELECT min(queue) FROM jobs WHERE state >= 2 AND state = ?1 AND queue > ended.name)
      FROM ended WHERE ended.name IS NOT NULL
)
SELECT jobs.seq, jobs.key
  FROM ended CROSS JOIN jobs
 WHERE jobs.state >= 2 AND jobs.state = ?1 AND jobs.queue = ended.name
   AND jobs.finished_at < coalesce((SELECT value FROM json_each(?3) WHERE key = ended.name), ?2)
   AND jobs.finished_at >= coalesce((SELECT value FROM json_each(?6) WHERE key = ended.name), ?5)
   AND jobs.part IS NULL
 LIMIT ?4;

-- name: secret
SELECT value FROM secrets WHERE name = 'keys';

-- name: keep_secret
INSERT INTO secrets (name, value) VALUES ('keys', ?1) ON CONFLICT DO NOTHING;

-- name: change_secret
UPDATE secrets SET value = ?1 WHERE name = 'keys' AND value = ?2;
