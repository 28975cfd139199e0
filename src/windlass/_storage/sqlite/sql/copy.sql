-- Everything out of one storage and into another.

-- name: histories
-- The number first, then as `attempt_of` in rows.py reads them.
SELECT seq, claim_number, attempt, verb, worker, started_at, ended_at, error_kind, error_message,
       error_traceback, metadata
  FROM history
 WHERE seq IN (SELECT value FROM json_each(?1))
 ORDER BY seq, claim_number;

-- name: logged
SELECT DISTINCT seq FROM logs WHERE seq IN (SELECT value FROM json_each(?1));

-- name: restore
INSERT INTO jobs (
    id, state, ready, lane, queue, task, priority, due, attempt, max_attempts, budget,
    claim_number, cancel_requested, lost, solo, worker, created_at, started_at, finished_at,
    ended_number, ended_verb, ended_by, limits, expires_at, timeout, key, key_window, key_period,
    missed_at, backoff, tags, tenant, principal, correlation_id, trace, parent, progress,
    progress_note, reason, error_kind, error_message, error_traceback, error_frame, result, payload,
    throttled, on_failure, key_spent, missed_why, on_lost, metadata, part, flow_state, timing
)
VALUES (
    :id, :state, :ready, :lane, :queue, :task, :priority, :due, :attempt, :max_attempts, :budget,
    :claim_number, :cancel_requested, :lost, :solo, :worker, :created_at, :started_at, :finished_at,
    :ended_number, :ended_verb, :ended_by, :limits, :expires_at, :timeout, :key, :key_window,
    :key_period, :missed_at, :backoff, :tags, :tenant, :principal, :correlation_id, :trace, :parent,
    :progress, :progress_note, :reason, :error_kind, :error_message, :error_traceback, :error_frame,
    :result, :payload, :throttled, :on_failure, :key_spent, :missed_why, :on_lost, :metadata, :part,
    :flow_state, :timing
)
ON CONFLICT (id) DO NOTHING;

-- name: restore_queue
INSERT INTO queues (name, paused, settings, max_running, cool_until, cool_downs)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (name) DO UPDATE
   SET paused = excluded.paused, settings = excluded.settings, max_running = excluded.max_running,
       cool_until = excluded.cool_until, cool_downs = excluded.cool_downs;

-- name: restore_gate
INSERT INTO gates (gate, spent_until, failures, opened, open_until) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (gate) DO UPDATE
   SET spent_until = excluded.spent_until, failures = excluded.failures, opened = excluded.opened,
       open_until = excluded.open_until;
