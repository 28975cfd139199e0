-- Schedules.

-- name: rows
SELECT name, revision, body, next_at, declared_at FROM windlass.schedules ORDER BY name;

-- name: named
SELECT name, revision, body, next_at, declared_at FROM windlass.schedules
 WHERE name = ANY ($1::text[]) ORDER BY name;

-- name: page
SELECT name, revision, body, next_at, declared_at FROM windlass.schedules
 WHERE name > $1 ORDER BY name LIMIT $2;

-- name: due
SELECT at, following, paused, name, revision, body, next_at, declared_at
  FROM windlass.due_schedules($1, $2);

-- name: write
SELECT windlass.put_schedules($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: declare
SELECT windlass.declare_schedules($1, $2);

-- name: switch
SELECT windlass.switch_schedules($1, $2, $3, $4);

-- name: paused
SELECT (SELECT at FROM windlass.switches WHERE name = 'schedules');
