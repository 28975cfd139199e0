-- Jobs in the order of a time: where they stand in an index that has it.
--
-- Each answers instant and number of those behind the place (?1, ?2), up to the bound ?3, at most ?4.
-- The names that end in `_last` go backwards: the latest first, down to the bound itself.

-- name: due
SELECT due, seq FROM jobs
 WHERE ready = 0 AND (due, seq) > (?1, ?2) AND due < ?3
 ORDER BY due, seq LIMIT ?4;

-- name: due_last
SELECT due, seq FROM jobs
 WHERE ready = 0 AND (due, seq) < (?1, ?2) AND due >= ?3
 ORDER BY due DESC, seq DESC LIMIT ?4;

-- name: due_of
SELECT due, seq FROM jobs
 WHERE ready = 0 AND queue = ?5 AND (due, seq) > (?1, ?2) AND due < ?3
 ORDER BY due, seq LIMIT ?4;

-- name: due_of_last
SELECT due, seq FROM jobs
 WHERE ready = 0 AND queue = ?5 AND (due, seq) < (?1, ?2) AND due >= ?3
 ORDER BY due DESC, seq DESC LIMIT ?4;

-- name: failed
SELECT finished_at, seq FROM jobs
 WHERE state = 3 AND (finished_at, seq) > (?1, ?2) AND finished_at < ?3
 ORDER BY finished_at, seq LIMIT ?4;

-- name: failed_last
SELECT finished_at, seq FROM jobs
 WHERE state = 3 AND (finished_at, seq) < (?1, ?2) AND finished_at >= ?3
 ORDER BY finished_at DESC, seq DESC LIMIT ?4;

-- name: ended
SELECT finished_at, seq FROM jobs
 WHERE state >= 2 AND state = ?5 AND queue = ?6
   AND (finished_at, seq) > (?1, ?2) AND finished_at < ?3
 ORDER BY finished_at, seq LIMIT ?4;

-- name: ended_last
SELECT finished_at, seq FROM jobs
 WHERE state >= 2 AND state = ?5 AND queue = ?6
   AND (finished_at, seq) < (?1, ?2) AND finished_at >= ?3
 ORDER BY finished_at DESC, seq DESC LIMIT ?4;

-- name: heads
-- Of each queue, from one to the next by the index, when the first one ended at or after ?2.
WITH RECURSIVE ended (name) AS (
    SELECT (SELECT min(queue) FROM jobs WHERE state >= 2 AND state = ?1)
    UNION ALL
    SELECT (SELECT min(queue) FROM jobs WHERE state >= 2 AND state = ?1 AND queue > ended.name)
      FROM ended WHERE ended.name IS NOT NULL
)
SELECT name, (SELECT min(finished_at) FROM jobs
               WHERE state >= 2 AND state = ?1 AND queue = ended.name AND finished_at >= ?2)
  FROM ended WHERE name IS NOT NULL;

-- name: heads_last
-- The same of the last one at or before ?2.
WITH RECURSIVE ended (name) AS (
    SELECT (SELECT min(queue) FROM jobs WHERE state >= 2 AND state = ?1)
    UNION ALL
    SELECT (SELECT min(queue) FROM jobs WHERE state >= 2 AND state = ?1 AND queue > ended.name)
      FROM ended WHERE ended.name IS NOT NULL
)
SELECT name, (SELECT max(finished_at) FROM jobs
               WHERE state >= 2 AND state = ?1 AND queue = ended.name AND finished_at <= ?2)
  FROM ended WHERE name IS NOT NULL;

-- name: starts
-- All of them, to be sorted: no more than the slots of all workers, but the claims of dead ones.
SELECT started_at, seq FROM jobs WHERE state = 1 AND worker >= ?1 AND worker <= ?2;

-- name: numbers
SELECT created_at, seq FROM jobs WHERE seq > ?1 ORDER BY seq LIMIT ?2;
