-- What holds for whole queues.

-- name: rest
-- The cool-down of a queue, for callers that change it.
SELECT cool_until, cool_downs FROM queues WHERE name = ?1;

-- name: forgivable
SELECT name FROM queues WHERE cool_until <= ?1;

-- name: cool
INSERT INTO queues (name, cool_until, cool_downs) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET cool_until = excluded.cool_until, cool_downs = excluded.cool_downs;

-- name: running
-- What the running rows say: no more of them than the slots of all workers.
SELECT count(*) FROM jobs WHERE state = 1 AND queue = ?1;

-- name: settings
SELECT settings FROM queues WHERE name = ?1;

-- name: change
INSERT INTO queues (name, settings, max_running) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET settings = excluded.settings, max_running = excluded.max_running;

-- name: queues
-- A row that says nothing is none: see `forget`.
SELECT name, settings, paused, cool_until, cool_downs FROM queues
 WHERE paused OR settings IS NOT NULL OR cool_until IS NOT NULL
 ORDER BY name;

-- name: queue
SELECT name, settings, paused, cool_until, cool_downs FROM queues WHERE name = ?1;

-- name: forget
DELETE FROM queues
 WHERE name = ?1 AND NOT paused AND settings IS NULL AND cool_until IS NULL AND cool_downs = 0;

-- name: paused
SELECT name FROM queues WHERE paused = 1;

-- name: pause
INSERT INTO queues (name, paused) VALUES (?1, 1) ON CONFLICT (name) DO UPDATE SET paused = 1;

-- name: resume
UPDATE queues SET paused = 0 WHERE name = ?1;
