-- Schedules.

-- name: rows
SELECT name, revision, body, next_at, declared_at FROM windlass.schedules ORDER BY name;

-- name: due
SELECT at, following, name, revision, body, next_at, declared_at
  FROM windlass.due_schedules($1, $2);

-- name: write
SELECT windlass.put_schedules($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: declare
SELECT windlass.declare_schedules($1, $2);
