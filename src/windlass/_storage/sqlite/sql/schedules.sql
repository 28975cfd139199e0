-- Schedules. A body goes in and comes out as bytes: what is no text must not stop the others.

-- name: rows
SELECT name, revision, CAST(body AS BLOB), next_at, declared_at FROM schedules ORDER BY name;

-- name: named
SELECT name, revision, CAST(body AS BLOB), next_at, declared_at FROM schedules
 WHERE name IN (SELECT value FROM json_each(?1)) ORDER BY name;

-- name: page
SELECT name, revision, CAST(body AS BLOB), next_at, declared_at FROM schedules
 WHERE name > ?1 ORDER BY name LIMIT ?2;

-- name: due
SELECT name, revision, CAST(body AS BLOB), next_at, declared_at FROM schedules
 WHERE next_at <= ?1 ORDER BY next_at, name LIMIT ?2;

-- name: next_due
SELECT next_at FROM schedules WHERE next_at > ?1 ORDER BY next_at LIMIT 1;

-- name: fence
SELECT revision, CAST(body AS BLOB) FROM schedules WHERE name = ?1;

-- name: active
SELECT count(*) FROM jobs
 WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND +state IN (0, 1);

-- name: write
INSERT INTO schedules (name, revision, next_at, body) VALUES (?1, ?2, ?3, CAST(?4 AS TEXT))
ON CONFLICT (name) DO UPDATE
   SET revision = excluded.revision, next_at = excluded.next_at, body = excluded.body;

-- name: delete
DELETE FROM schedules WHERE name = ?1;

-- name: declare
UPDATE schedules SET declared_at = ?2 WHERE name IN (SELECT value FROM json_each(?1));

-- name: paused
SELECT at FROM switches WHERE name = 'schedules';

-- name: pause
INSERT INTO switches (name, at) VALUES ('schedules', ?1) ON CONFLICT DO NOTHING;

-- name: resume
DELETE FROM switches WHERE name = 'schedules';
