-- What holds for whole queues.

-- name: queues
SELECT name, settings, paused, cool_until, cool_downs
  FROM windlass.queues
 WHERE settings IS NOT NULL OR paused OR cool_until IS NOT NULL OR cool_downs > 0
 ORDER BY name;

-- name: settings
SELECT settings FROM windlass.queues WHERE name = $1;

-- name: change
SELECT windlass.change_queue($1, $2, $3, $4, $5, $6);

-- name: warm
SELECT windlass.warm_queue($1, $2, $3);
