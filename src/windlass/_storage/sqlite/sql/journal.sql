-- Log lines of runs and events of jobs.

-- name: stored
SELECT id, seq FROM jobs WHERE id IN (SELECT unhex(value) FROM json_each(?1));

-- name: append_log
INSERT INTO logs (seq, claim_number, number, lines) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (seq, claim_number, number) DO NOTHING;

-- name: logs
SELECT claim_number, number, lines FROM logs
 WHERE seq = ?1 AND (claim_number, number) > (?2, ?3)
 ORDER BY claim_number, number;

-- name: append_event
INSERT INTO events (at, seq, kind, task, queue, worker, attempt)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: restore_event
-- An event has no id: equal events are the same.
INSERT INTO events (at, seq, kind, task, queue, worker, attempt)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
 WHERE NOT EXISTS (SELECT 1 FROM events
                    WHERE seq = ?2 AND at = ?1 AND kind = ?3 AND task = ?4 AND queue = ?5
                      AND worker = ?6 AND attempt = ?7);

-- name: events
SELECT events.at, events.kind, jobs.id, events.task, events.queue, events.worker, events.attempt
  FROM events CROSS JOIN jobs ON jobs.seq = events.seq
 WHERE events.at >= ?1 AND events.at < ?2
 ORDER BY events.at, events.number LIMIT ?3;

-- name: events_of
SELECT events.at, events.kind, jobs.id, events.task, events.queue, events.worker, events.attempt
  FROM jobs CROSS JOIN events ON events.seq = jobs.seq
 WHERE jobs.id = ?4 AND events.at >= ?1 AND events.at < ?2
 ORDER BY events.at, events.number LIMIT ?3;

-- name: newest
SELECT events.at, events.kind, jobs.id, events.task, events.queue, events.worker, events.attempt
  FROM events CROSS JOIN jobs ON jobs.seq = events.seq
 WHERE events.at >= ?1 AND events.at < ?2
 ORDER BY events.at DESC, events.number DESC LIMIT ?3;

-- name: newest_of
SELECT events.at, events.kind, jobs.id, events.task, events.queue, events.worker, events.attempt
  FROM jobs CROSS JOIN events ON events.seq = jobs.seq
 WHERE jobs.id = ?4 AND events.at >= ?1 AND events.at < ?2
 ORDER BY events.at DESC, events.number DESC LIMIT ?3;

-- name: prune_events
DELETE FROM events WHERE number IN (
    SELECT number FROM events WHERE at < ?1 ORDER BY at LIMIT ?2
);

-- name: any
-- Whether anything is written down at all: most stores keep neither, and pay nothing for it.
SELECT EXISTS (SELECT 1 FROM logs), EXISTS (SELECT 1 FROM events);

-- name: delete_logs
DELETE FROM logs WHERE seq IN (SELECT value FROM json_each(?1));

-- name: delete_events
DELETE FROM events WHERE seq IN (SELECT value FROM json_each(?1));
