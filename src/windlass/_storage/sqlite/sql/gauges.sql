-- Gauges of hosts and of the storage, by minute.

-- name: put
INSERT INTO gauges (minute, source, readings) VALUES (?1, ?2, ?3)
ON CONFLICT (minute, source) DO UPDATE SET readings = excluded.readings;

-- name: of_source
SELECT minute, source, readings FROM gauges
 WHERE minute >= ?1 AND minute < ?2 AND source = ?3 ORDER BY minute;

-- name: of_all
SELECT minute, source, readings FROM gauges
 WHERE minute >= ?1 AND minute < ?2 ORDER BY minute, source;

-- name: one
SELECT readings FROM gauges WHERE minute = ?1 AND source = ?2;

-- name: unmerged
-- The condition is that of their index.
SELECT minute, source, readings FROM gauges
 WHERE minute % 3600000000 <> 0 AND minute < ?1 ORDER BY minute LIMIT ?2;

-- name: remove
DELETE FROM gauges WHERE minute = ?1 AND source = ?2;

-- name: prune
DELETE FROM gauges WHERE (minute, source) IN (
    SELECT minute, source FROM gauges WHERE minute < ?1 ORDER BY minute LIMIT ?2
);
