-- What the accepted finishes and coalesced enqueues add up to.

-- name: rollup
SELECT counts, wait, run FROM rollups
 WHERE minute = ?1 AND queue = ?2 AND task = ?3 AND worker = ?4;

-- name: put_rollup
INSERT INTO rollups (minute, queue, task, worker, counts, wait, run)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (minute, queue, task, worker)
DO UPDATE SET counts = excluded.counts, wait = excluded.wait, run = excluded.run;

-- name: count_coalesced
-- ?4: how many enqueues of this queue and task were answered with the holder of their key. '(enqueue)' is no
-- worker: producers have none.
INSERT INTO rollups (minute, queue, task, worker, counts, wait, run)
VALUES (?1, ?2, ?3, '(enqueue)', json_object('coalesce', ?4), '{}', '{}')
ON CONFLICT (minute, queue, task, worker)
DO UPDATE SET counts = json_set(counts, '$.coalesce', coalesce(counts ->> '$.coalesce', 0) + ?4);

-- name: rollups
SELECT minute, queue, task, counts, wait, run FROM rollups WHERE minute >= ?1 AND minute < ?2;

-- name: prune_rollups
DELETE FROM rollups WHERE (minute, queue, task, worker) IN (
    SELECT minute, queue, task, worker FROM rollups WHERE minute < ?1 ORDER BY minute LIMIT ?2
);

-- name: unmerged
-- The condition is that of their index.
SELECT minute, queue, task, worker, counts, wait, run FROM rollups
 WHERE (minute % 3600000000 <> 0 OR worker NOT IN ('', '(copied)')) AND minute < ?1
 ORDER BY minute LIMIT ?2;

-- name: remove_rollup
DELETE FROM rollups WHERE minute = ?1 AND queue = ?2 AND task = ?3 AND worker = ?4;
