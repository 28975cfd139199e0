-- Jobs with all their columns.

-- part: columns
-- As `job_of` in rows.py reads them. ?2: now. A blocked job shows what it was asked for, not the
-- last instant, as which it is stored.
SELECT seq, id, state, queue, task, priority,
       iif(flow_state = 1,
           coalesce(timing ->> '$.at',
                    min(created_at + (timing ->> '$.delay'), 221845392000000000), created_at), due),
       attempt, max_attempts, budget, claim_number,
       cancel_requested, lost, solo, worker, created_at, started_at, finished_at, limits,
       expires_at, timeout, key,
       EXISTS (SELECT 1 FROM keys WHERE keys.key = jobs.key AND keys.seq = jobs.seq
                                    AND (keys.until IS NULL OR keys.until > ?2)),
       missed_at, backoff, tags, tenant, principal, correlation_id, trace, parent, progress,
       progress_note, reason, error_kind, error_message, error_traceback, result, payload,
       throttled, on_failure, missed_why, on_lost, key_window, key_period, metadata,
       (SELECT json_array(lower(hex(flows.id)), parts.number, 
                        jobs.seq > coalesce(parts.last_seq, flows.last_seq))
          FROM parts JOIN flows ON flows.number = parts.flow WHERE parts.id = jobs.part),
       flow_state IS 1

-- name: get
-- include: columns
  FROM jobs
 WHERE id IN (SELECT unhex(value) FROM json_each(?1));

-- name: rows
-- include: columns
  FROM jobs
 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: dump
-- Behind them what people do not see.
-- include: columns
     , (SELECT until FROM keys WHERE keys.key = jobs.key AND keys.seq = jobs.seq AND until > ?2),
       ended_number, ended_verb, ended_by, flow_state, timing
  FROM jobs
 WHERE seq > ?1
   AND (part IS NULL
        OR part NOT IN (SELECT parts.id FROM flows JOIN parts ON parts.flow = flows.number
                         WHERE flows.going = 1))
 ORDER BY seq LIMIT ?3;
