-- How many jobs of a queue are where, counted in the indexes and no further than asked for.

-- name: queues
-- Every queue that has jobs or settings: from one name to the next by
-- each index. The running are no more than the slots of all workers.
WITH RECURSIVE
ready (name) AS (
    SELECT (SELECT min(queue) FROM jobs WHERE ready = 1)
    UNION ALL
    SELECT (SELECT min(queue) FROM jobs WHERE ready = 1 AND queue > ready.name)
      FROM ready WHERE ready.name IS NOT NULL
),
later (name) AS (
    SELECT (SELECT min(queue) FROM jobs WHERE ready = 0)
    UNION ALL
    SELECT (SELECT min(queue) FROM jobs WHERE ready = 0 AND queue > later.name)
      FROM later WHERE later.name IS NOT NULL
),
alone (name) AS (
    SELECT (SELECT min(queue) FROM jobs WHERE ready = 3)
    UNION ALL
    SELECT (SELECT min(queue) FROM jobs WHERE ready = 3 AND queue > alone.name)
      FROM alone WHERE alone.name IS NOT NULL
),
laned (name) AS (
    SELECT (SELECT min(queue) FROM lanes)
    UNION ALL
    SELECT (SELECT min(queue) FROM lanes WHERE queue > laned.name)
      FROM laned WHERE laned.name IS NOT NULL
),
ended (state, name) AS (
    SELECT value, (SELECT min(queue) FROM jobs WHERE state >= 2 AND state = value)
      FROM json_each('[2, 3, 4, 5]')
    UNION ALL
    SELECT ended.state, (SELECT min(queue) FROM jobs
                          WHERE state >= 2 AND state = ended.state AND queue > ended.name)
      FROM ended WHERE ended.name IS NOT NULL
)
SELECT name FROM ready WHERE name IS NOT NULL
UNION SELECT name FROM later WHERE name IS NOT NULL
UNION SELECT name FROM alone WHERE name IS NOT NULL
UNION SELECT name FROM laned WHERE name IS NOT NULL
UNION SELECT name FROM ended WHERE name IS NOT NULL
UNION SELECT queue FROM jobs WHERE state = 1
UNION SELECT name FROM queues WHERE paused OR settings IS NOT NULL
ORDER BY 1;

-- name: tasks
-- Waiting jobs by line and task, up to ?1 of each line, and the running ones with the line -1. Each
-- line is read in the order of its index, or SQLite would walk through all ended jobs.
SELECT line, task, count(*)
  FROM (SELECT 0 AS line, task
          FROM (SELECT task FROM jobs INDEXED BY jobs_scheduled WHERE ready = 0 LIMIT ?1)
        UNION ALL
        SELECT 1, task FROM (SELECT task FROM jobs INDEXED BY jobs_ready WHERE ready = 1 LIMIT ?1)
        UNION ALL
        SELECT 2, task FROM (SELECT task FROM jobs INDEXED BY jobs_in_lane WHERE ready = 2 LIMIT ?1)
        UNION ALL
        SELECT 3, task FROM (SELECT task FROM jobs INDEXED BY jobs_solo WHERE ready = 3 LIMIT ?1)
        UNION ALL
        SELECT -1, task FROM jobs WHERE state = 1)
 GROUP BY line, task;

-- name: running
SELECT queue, count(*) FROM jobs WHERE state = 1 GROUP BY queue;

-- name: count
-- One queue ?1 at the instant ?2, each number up to ?3; -1: however many. Columns as `_Counted` in
-- admin/admin.py. Who waits for longest is looked for from one priority to the next by the index; of
-- those in lanes, in as many lanes as ?4 says.
SELECT (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE ready = 1 AND queue = ?1 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1
                                FROM lanes CROSS JOIN jobs ON jobs.lane = lanes.id AND ready = 2
                               WHERE lanes.queue = ?1 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE ready = 3 AND queue = ?1 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1 FROM jobs
                               WHERE ready = 0 AND queue = ?1 AND due <= ?2 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1 FROM jobs
                               WHERE ready = 0 AND queue = ?1 AND due > ?2 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1 FROM jobs
                               WHERE ready IS NOT NULL AND attempt > max_attempts - budget
                                 AND queue = ?1 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1 FROM jobs
                               WHERE state >= 2 AND state = 2 AND queue = ?1 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1 FROM jobs
                               WHERE state >= 2 AND state = 3 AND queue = ?1 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1 FROM jobs
                               WHERE state >= 2 AND state = 4 AND queue = ?1 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1 FROM jobs
                               WHERE state >= 2 AND state = 5 AND queue = ?1 LIMIT ?3)),
       (WITH RECURSIVE steps (priority) AS (
            SELECT (SELECT min(priority) FROM jobs WHERE ready = 1 AND queue = ?1)
            UNION ALL
            SELECT (SELECT min(priority) FROM jobs
                     WHERE ready = 1 AND queue = ?1 AND priority > steps.priority)
              FROM steps WHERE steps.priority IS NOT NULL
        )
        SELECT min((SELECT min(due) FROM jobs
                     WHERE ready = 1 AND queue = ?1 AND priority = steps.priority))
          FROM steps),
       (WITH RECURSIVE steps (lane, priority) AS (
            SELECT id, head_priority
              FROM (SELECT id, head_priority FROM lanes WHERE queue = ?1 LIMIT ?4)
            UNION ALL
            SELECT steps.lane, (SELECT min(priority) FROM jobs
                                 WHERE ready = 2 AND lane = steps.lane
                                   AND priority > steps.priority)
              FROM steps WHERE steps.priority IS NOT NULL
        )
        SELECT min((SELECT min(due) FROM jobs
                     WHERE ready = 2 AND lane = steps.lane AND priority = steps.priority))
          FROM steps),
       (WITH RECURSIVE steps (priority) AS (
            SELECT (SELECT min(priority) FROM jobs WHERE ready = 3 AND queue = ?1)
            UNION ALL
            SELECT (SELECT min(priority) FROM jobs
                     WHERE ready = 3 AND queue = ?1 AND priority > steps.priority)
              FROM steps WHERE steps.priority IS NOT NULL
        )
        SELECT min((SELECT min(due) FROM jobs
                     WHERE ready = 3 AND queue = ?1 AND priority = steps.priority))
          FROM steps),
       (SELECT min(due) FROM jobs WHERE ready = 0 AND queue = ?1 AND due <= ?2);
