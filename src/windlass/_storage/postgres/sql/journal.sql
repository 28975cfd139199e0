-- Log lines of runs, and the event log.

-- name: append_logs
SELECT windlass.append_logs($1::uuid[], $2, $3, $4, $5);

-- name: logs
SELECT seq, claim_number, number, lines FROM windlass.read_logs($1, $2, $3);

-- name: append_events
SELECT windlass.append_events($1, $2, $3::uuid[], $4, $5, $6, $7);

-- name: events
SELECT at, kind, id, task, queue, worker, attempt FROM windlass.read_events($1, $2, $3, $4, $5);
