-- Flows: their parts, and the jobs of the parts.

-- name: insert_member
-- As `insert` in jobs.sql, in a part.
INSERT INTO jobs (
    id, queue, task, ready, lane, priority, due, max_attempts, budget, created_at, expires_at,
    timeout, key, key_window, key_period, limits, backoff, tags, tenant, principal,
    correlation_id, trace, parent, on_failure, on_lost, payload, part, flow_state, timing
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: insert_plain_member
INSERT INTO jobs (id, queue, task, ready, priority, due, max_attempts, budget, created_at, payload,
                  part, flow_state, timing)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: last_seq
SELECT coalesce(max(seq), 0) FROM jobs;

-- name: older_id
-- One of these ids that was stored before, up to the job ?2.
SELECT lower(hex(id)) FROM jobs
 WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND +seq <= ?2 LIMIT 1;

-- name: join
-- Jobs that were just stored.
UPDATE jobs SET part = ?1
 WHERE id IN (SELECT unhex(value) FROM json_each(?2));

-- name: note_timing
-- What counts again from its turn, if a job comes to be blocked.
UPDATE jobs SET timing = ?2 WHERE id = ?1;

-- name: stored
-- Whether a flow with this id is stored, or was added to another one.
SELECT 1 FROM flows WHERE id = ?1 UNION ALL SELECT 1 FROM parts WHERE added_id = ?1;

-- name: holder
-- The running flow that holds a key. One that was cancelled before it was whole holds none.
SELECT lower(hex(id)) FROM flows
 WHERE key IS NOT NULL AND key = ?1 AND state = 'running' AND NOT (sealed AND cancelled)
 ORDER BY number LIMIT 1;

-- name: given_up
-- The sealed flow that holds a key, and is to be cancelled by ?2.
SELECT number FROM flows
 WHERE key IS NOT NULL AND key = ?1 AND state = 'running' AND sealed AND NOT cancelled
   AND expires_at <= ?2;

-- name: add_flow
INSERT INTO flows (id, name, created_at, expires_at, expires, key, tenant, last_seq, sealed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8);

-- name: add_part
INSERT INTO parts (flow, number, name, kind, task, runs_when, total, open, blocked, waiting, rank,
                   added_id, added_first, counts_for, last_seq)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14);

-- name: adder
-- Where a member that adds a flow stands: flow, part, its kind, and whether the flow was cancelled.
SELECT parts.flow, parts.number, parts.kind, flows.cancelled
  FROM parts JOIN flows ON flows.number = parts.flow WHERE parts.id = ?1;

-- name: growing
-- A flow that another one is added to from outside: its number and state, and the number of its end.
SELECT flows.number, flows.state, flows.cancelled, flows.sealed, flows.expires_at, parts.number
  FROM flows JOIN parts ON parts.flow = flows.number AND parts.kind = 'end'
 WHERE flows.id = ?1 AND flows.going = 0;

-- name: joined
-- Whether the flow ?1 was added to the flow ?2.
SELECT 1 FROM parts WHERE added_id = ?1 AND flow = ?2;

-- name: learn_before
-- Count in the new parts, numbered from ?2 on, what the parts that they wait for have told already.
UPDATE parts
   SET waiting = waiting - told.over, broken = told.broken, unneeded = told.unneeded
  FROM (SELECT edges.part AS number, sum(before.tells_over) AS over,
               sum(edges.strict AND before.tells_broken) AS broken,
               sum(edges.strict AND before.tells_unneeded) AS unneeded
          FROM edges
          JOIN parts AS before ON before.flow = edges.flow AND before.number = edges.after
         WHERE edges.flow = ?1 AND edges.part >= ?2 AND edges.after < ?2
         GROUP BY edges.part) AS told
 WHERE parts.flow = ?1 AND parts.number = told.number;

-- name: next_number
SELECT max(number) + 1 FROM parts WHERE flow = ?1;

-- name: expect_flow
-- The part ?2 is not over before a flow that was added.
UPDATE parts SET adding = adding + 1 WHERE flow = ?1 AND number = ?2;

-- name: any_of
SELECT EXISTS (SELECT 1 FROM jobs WHERE id IN (SELECT unhex(value) FROM json_each(?1)));

-- name: part_ids_from
SELECT id FROM parts WHERE flow = ?1 AND number >= ?2 ORDER BY number;

-- name: note_part_last
UPDATE parts SET last_seq = (SELECT coalesce(max(seq), 0) FROM jobs)
 WHERE flow = ?1 AND number >= ?2;

-- name: add_edge
INSERT INTO edges (flow, part, after, strict) VALUES (?1, ?2, ?3, ?4);

-- name: note_last
UPDATE flows SET last_seq = (SELECT coalesce(max(seq), 0) FROM jobs) WHERE number = ?1;

-- name: extended
-- A flow that is to get more jobs: its number, whether it is sealed and was cancelled, and its time.
SELECT number, sealed, cancelled, expires FROM flows WHERE id = ?1 AND going = 0;

-- name: any_stored
SELECT EXISTS (SELECT 1 FROM jobs WHERE id = ?1);

-- name: count_new
UPDATE parts SET total = total + ?2, open = open + ?2, blocked = blocked + ?2 WHERE id = ?1;

-- name: note_extended
-- It expires at ?2; ?3: it is sealed.
UPDATE flows SET expires_at = ?2, sealed = ?3 WHERE number = ?1;

-- name: part_ids
SELECT id FROM parts WHERE flow = ?1 ORDER BY number;

-- part: part_columns
-- As `CountedPart.of` reads them.
SELECT parts.id, parts.flow, parts.number, iif(parts.added_id IS NULL, parts.kind, 'added'),
       parts.runs_when,
       parts.total, parts.open, parts.blocked, parts.succeeded, parts.failed, parts.cancelled,
       parts.stopped, parts.skipped, parts.waiting, parts.broken, parts.unneeded,
       parts.adding, parts.added_broken, parts.tells_over, parts.tells_broken,
       parts.tells_unneeded, parts.due, flows.cancelled, flows.sealed, parts.rank,
       parts.counts_for, flows.created_at,
       parts.kind = 'jobs' AND coalesce(parts.rank >= flows.retry_rank, 0)

-- name: parts
-- include: part_columns
  FROM parts JOIN flows ON flows.number = parts.flow
 WHERE parts.id IN (SELECT value FROM json_each(?1));

-- name: part_of_number
-- The part ?2 of the flow ?1.
-- include: part_columns
  FROM parts JOIN flows ON flows.number = parts.flow
 WHERE parts.flow = ?1 AND parts.number = ?2;

-- name: followers
-- The parts that wait for the part ?2 of the flow ?1.
-- include: part_columns
     , edges.strict
  FROM edges
  JOIN parts ON parts.flow = edges.flow AND parts.number = edges.part
  JOIN flows ON flows.number = parts.flow
 WHERE edges.flow = ?1 AND edges.after = ?2;

-- name: store_part
UPDATE parts
   SET total = ?2, open = ?3, blocked = ?4, succeeded = ?5, failed = ?6, cancelled = ?7,
       stopped = ?8, skipped = ?9, waiting = ?10, broken = ?11, unneeded = ?12, adding = ?13,
       added_broken = ?14, tells_over = ?15, tells_broken = ?16, tells_unneeded = ?17, due = ?18
 WHERE id = ?1;

-- name: end_flow
UPDATE flows SET state = ?2, ended_at = ?3 WHERE number = ?1;

-- name: run_again
-- An ended flow continues, and has all its time again. ?2: now, ?3: the last instant.
UPDATE flows SET state = 'running', ended_at = NULL, expires_at = min(?2 + expires, ?3)
 WHERE number = ?1 AND ended_at IS NOT NULL;

-- name: first_due
-- The first part of an ended flow that is to be settled; none: the flow runs.
SELECT parts.id FROM flows JOIN parts ON parts.flow = flows.number
 WHERE flows.number = ?1 AND flows.ended_at IS NOT NULL AND parts.due = 1
 ORDER BY parts.rank LIMIT 1;

-- name: places
-- Where the jobs of these parts stand, and whether they must not start any more.
SELECT parts.id, lower(hex(flows.id)), parts.number, coalesce(parts.last_seq, flows.last_seq),
       flows.cancelled AND parts.kind = 'jobs'
  FROM parts JOIN flows ON flows.number = parts.flow
 WHERE parts.id IN (SELECT value FROM json_each(?1));

-- name: waits
-- Whether a part waits for others, or for the rest of its flow.
SELECT EXISTS (SELECT 1 FROM parts JOIN edges ON edges.flow = parts.flow AND edges.part = parts.number
                WHERE parts.id = ?1)
    OR EXISTS (SELECT 1 FROM parts JOIN flows ON flows.number = parts.flow
                WHERE parts.id = ?1 AND flows.sealed);

-- name: standing
-- The flow of a part: whether its members are not requeued one by one, and whether another running
-- flow holds its key.
SELECT flows.cancelled OR flows.going,
       EXISTS (SELECT 1 FROM flows AS other
                WHERE other.key IS NOT NULL AND other.key = flows.key AND other.state = 'running'
                  AND NOT (other.sealed AND other.cancelled) AND other.number <> flows.number)
  FROM parts JOIN flows ON flows.number = parts.flow
 WHERE parts.id = ?1;

-- name: is_unsettled
-- Whether `settle` has something to do at ?1.
SELECT EXISTS (SELECT 1 FROM parts WHERE due = 1)
    OR EXISTS (SELECT 1 FROM flows WHERE swept_part > 0)
    OR EXISTS (SELECT 1 FROM flows
                WHERE expires_at IS NOT NULL AND cancelled = 0 AND ended_at IS NULL
                  AND expires_at <= ?1);

-- name: unsettled
-- The same by kind: the first part that is due, whether a cancel must reach further, and whether a
-- flow has expired.
SELECT (SELECT id FROM parts WHERE due = 1 ORDER BY flow, rank LIMIT 1),
       EXISTS (SELECT 1 FROM flows WHERE swept_part > 0),
       EXISTS (SELECT 1 FROM flows
                WHERE expires_at IS NOT NULL AND cancelled = 0 AND ended_at IS NULL
                  AND expires_at <= ?1);

-- name: late
SELECT number FROM flows
 WHERE expires_at IS NOT NULL AND cancelled = 0 AND ended_at IS NULL AND expires_at <= ?1
 LIMIT ?2;

-- name: due_part
-- In the order of the graph: what a part before it blocks again must not be passed.
SELECT id FROM parts WHERE due = 1 ORDER BY flow, rank LIMIT 1;

-- name: settleable
-- Jobs of a part that its flow blocked, stopped or skipped.
SELECT seq, key, key_window, key_period FROM jobs
 WHERE flow_state IS NOT NULL AND part = ?1 AND flow_state = ?2
 ORDER BY seq LIMIT ?3;

-- name: place
-- Up to ?5 blocked jobs of the part ?1, at ?2, ordered by the start of the flow, ?4. Those with limits wait in the
-- line of those that are due later: the next claim finds their lanes. ?3: the last instant. A delay is over for
-- those that have run before.
UPDATE jobs
   SET due = iif(attempt > 0, ?4,
                 coalesce(timing ->> '$.at', min(?2 + (timing ->> '$.delay'), ?3), ?4)),
       ready = limits IS NULL
               AND (attempt > 0
                    OR coalesce(timing ->> '$.at', min(?2 + (timing ->> '$.delay'), ?3), ?4)
                       <= ?2),
       expires_at = min(?2 + (timing ->> '$.expires'), ?3), flow_state = NULL
 WHERE seq IN (SELECT seq FROM jobs
                WHERE flow_state IS NOT NULL AND part = ?1 AND flow_state = 1
                ORDER BY seq LIMIT ?5);

-- name: end_blocked
-- By the flow: the state ?2 as it is stored of jobs, and ?3 of flows.
UPDATE jobs
   SET state = ?2, flow_state = ?3, ready = NULL, finished_at = ?4, reason = ?5,
       due = coalesce(timing ->> '$.at', min(created_at + (timing ->> '$.delay'), ?6), created_at)
 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: block_again
UPDATE jobs
   SET state = 0, flow_state = 1, ready = 0, due = ?2, max_attempts = attempt + budget,
       finished_at = NULL, reason = NULL, cancel_requested = 0
 WHERE seq IN (SELECT value FROM json_each(?1));

-- name: leave_ended
-- It cannot be blocked again: from now on it counts as cancelled.
UPDATE jobs SET flow_state = NULL, reason = ?2 WHERE seq = ?1;

-- name: forget_due
UPDATE parts SET due = 0 WHERE id = ?1;

-- name: first_broken
-- The first part that broke the part ?1.
SELECT before.name
  FROM parts
  JOIN edges ON edges.flow = parts.flow AND edges.part = parts.number AND edges.strict
  JOIN parts AS before ON before.flow = edges.flow AND before.number = edges.after
 WHERE parts.id = ?1 AND before.tells_broken
 ORDER BY edges.id LIMIT 1;

-- name: sweeping
SELECT number, swept_part, swept_seq FROM flows
 WHERE swept_part > 0 LIMIT 1;

-- name: sweepable
SELECT seq, state, flow_state FROM jobs WHERE part = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3;

-- name: next_swept
-- The part of members after the part ?2.
SELECT id FROM parts WHERE flow = ?1 AND kind = 'jobs' AND id > ?2 ORDER BY number LIMIT 1;

-- name: note_swept
UPDATE flows SET swept_part = ?2, swept_seq = ?3 WHERE number = ?1;

-- name: cancel
UPDATE flows
   SET cancelled = 1, swept_seq = 0, retry_rank = NULL,
       swept_part = (SELECT min(id) FROM parts WHERE flow = flows.number AND kind = 'jobs')
 WHERE number = ?1;

-- name: begin_retry
UPDATE flows
   SET cancelled = 0, swept_part = NULL, retry_seq = 0,
       retry_rank = (SELECT min(rank) FROM parts WHERE flow = flows.number)
 WHERE number = ?1
RETURNING number, retry_rank, retry_seq;

-- name: retrying
-- A flow that is being retried: its number, and how far that has come.
SELECT number, retry_rank, retry_seq FROM flows WHERE retry_rank IS NOT NULL LIMIT 1;

-- name: note_retried
UPDATE flows SET retry_rank = ?2, retry_seq = ?3 WHERE number = ?1;

-- name: retried_part
-- The first part of members from the rank ?2 on.
SELECT id, rank FROM parts WHERE flow = ?1 AND rank >= ?2 AND kind = 'jobs' ORDER BY rank LIMIT 1;

-- name: acted_on
SELECT number, state, EXISTS (SELECT 1 FROM flows AS other
                               WHERE other.key IS NOT NULL AND other.key = flows.key
                                 AND other.state = 'running'
                                 AND NOT (other.sealed AND other.cancelled)
                                 AND other.number <> flows.number),
       sealed
  FROM flows WHERE id = ?1 AND going = 0;

-- name: members
-- Those that were given with the flow. It may be one that was added to another one. The part is found
-- first, so that a page is read in the order of its index.
SELECT jobs.seq, jobs.id, jobs.state, jobs.flow_state, jobs.result, jobs.error_kind,
       jobs.error_message, jobs.reason
  FROM jobs
 WHERE jobs.part = (SELECT parts.id
                      FROM (SELECT number AS flow, 0 AS added_first FROM flows WHERE id = ?1
                            UNION ALL
                            SELECT flow, added_first FROM parts WHERE added_id = ?1) AS named
                      JOIN flows ON flows.number = named.flow AND flows.going = 0
                      JOIN parts ON parts.flow = named.flow
                                AND parts.number = named.added_first + ?2)
   AND jobs.seq > ?3
   AND jobs.seq <= (SELECT coalesce(parts.last_seq, flows.last_seq)
                      FROM parts JOIN flows ON flows.number = parts.flow
                     WHERE parts.id = jobs.part)
 ORDER BY jobs.seq LIMIT ?4;

-- part: flow_columns
-- As `flow_of` reads them.
SELECT flows.id, flows.number, flows.name, flows.state, flows.created_at, flows.ended_at, flows.key,
       flows.cancelled, flows.sealed, flows.expires_at, flows.expires, flows.tenant,
       total(parts.total), total(parts.open), total(parts.succeeded), total(parts.failed), total(parts.cancelled), total(parts.stopped),
       total(parts.skipped)
  FROM flows LEFT JOIN parts ON parts.flow = flows.number AND parts.kind = 'jobs'

-- name: states
SELECT lower(hex(id)), state FROM flows
 WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND going = 0;

-- name: flow
-- include: flow_columns
 WHERE flows.id = ?1 AND flows.going = 0
 GROUP BY flows.number;

-- name: find
-- include: flow_columns
 WHERE flows.number IN (SELECT number FROM flows
                         WHERE going = 0 AND number < :before
                           AND (:states IS NULL
                                OR state IN (SELECT value FROM json_each(:states)))
                           AND (:name IS NULL OR name = :name)
                           AND (:key IS NULL OR key = :key)
                           AND (:tenant IS NULL OR tenant = :tenant)
                         ORDER BY number DESC LIMIT :limit)
 GROUP BY flows.number
 ORDER BY flows.number DESC;

-- name: counts
-- Each up to ?1: flows that run, and that ended, by state, and blocked jobs. Then since when the oldest runs.
SELECT (SELECT count(*) FROM (SELECT 1 FROM flows WHERE ended_at IS NULL LIMIT ?1)),
       (SELECT count(*) FROM (SELECT 1 FROM flows
                               WHERE ended_at IS NOT NULL AND going = 0 AND state = 'succeeded'
                               LIMIT ?1)),
       (SELECT count(*) FROM (SELECT 1 FROM flows
                               WHERE ended_at IS NOT NULL AND going = 0 AND state = 'failed'
                               LIMIT ?1)),
       (SELECT count(*) FROM (SELECT 1 FROM flows
                               WHERE ended_at IS NOT NULL AND going = 0 AND state = 'cancelled'
                               LIMIT ?1)),
       (SELECT min(total(blocked), ?1)
          FROM (SELECT blocked FROM parts WHERE blocked > 0 LIMIT ?1)),
       (SELECT min(created_at) FROM flows WHERE ended_at IS NULL);

-- name: graph
-- As `part_of` reads them.
SELECT number, name, iif(added_id IS NULL, kind, 'added'), task, runs_when, total, blocked, open,
       succeeded, failed, cancelled, stopped, skipped, added_id, added_first, counts_for
  FROM parts WHERE flow = ?1 ORDER BY number;

-- name: edges
SELECT part, after, strict FROM edges WHERE flow = ?1 ORDER BY part, id;

-- name: going
SELECT number FROM flows WHERE going = 1 LIMIT 1;

-- name: let_go
-- The next flow that ended in the state ?1 before ?2, with its callbacks.
UPDATE flows SET going = 1
 WHERE number = (SELECT number FROM flows
                  WHERE ended_at IS NOT NULL AND state = ?1 AND ended_at < ?2 AND going = 0
                    AND NOT EXISTS (SELECT 1 FROM parts
                                     WHERE parts.flow = flows.number AND parts.open > 0)
                  ORDER BY ended_at LIMIT 1)
RETURNING number;

-- name: going_jobs
SELECT jobs.seq, jobs.key FROM parts JOIN jobs ON jobs.part = parts.id
 WHERE parts.flow = ?1 LIMIT ?2;

-- name: delete_edges
DELETE FROM edges WHERE flow = ?1;

-- name: delete_parts
DELETE FROM parts WHERE flow = ?1;

-- name: delete_flow
DELETE FROM flows WHERE number = ?1;

-- name: dumped
SELECT lower(hex(id)), retry_rank FROM flows
 WHERE number > ?1 AND going = 0 ORDER BY number LIMIT ?2;

-- name: restore_flow
INSERT INTO flows (id, name, state, created_at, ended_at, expires_at, expires, key, tenant,
                   cancelled, sealed, retry_rank)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (id) DO NOTHING;

-- name: restore_part
INSERT INTO parts (flow, number, name, kind, task, runs_when, total, open, blocked, succeeded, failed,
                   cancelled, stopped, skipped, waiting, broken, unneeded, adding, added_broken,
                   tells_over, tells_broken, tells_unneeded, due, rank, added_id, added_first,
                   counts_for, last_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: part_at
SELECT parts.id FROM flows JOIN parts ON parts.flow = flows.number AND parts.number = ?2
 WHERE flows.id = ?1;

-- name: note_given
-- The flow of the part ?1 was given the job ?2 at its start.
UPDATE flows SET last_seq = max(last_seq, ?2)
 WHERE number = (SELECT flow FROM parts WHERE id = ?1 AND last_seq IS NULL);

-- name: note_added
-- The same for a part of an added flow.
UPDATE parts SET last_seq = max(last_seq, ?2) WHERE id = ?1 AND last_seq IS NOT NULL;

-- name: recounted
SELECT number, lower(hex(id)) FROM flows
 WHERE number > ?1 AND going = 0 ORDER BY number LIMIT ?2;

-- name: counted
-- Of each part of a flow its name, the stored counts, and how many jobs there are. Columns as `_Recount` in
-- flows/recount.py.
SELECT parts.id, parts.name, parts.succeeded, parts.failed, parts.cancelled, parts.stopped,
       parts.skipped, parts.open, parts.blocked, parts.total,
       total(jobs.state = 2), total(jobs.state = 3 AND jobs.flow_state IS NULL),
       total(jobs.state IN (4, 5) AND jobs.flow_state IS NULL), total(jobs.flow_state = 2),
       total(jobs.flow_state = 3), total(jobs.state < 2), total(jobs.flow_state = 1), count(jobs.seq)
  FROM parts LEFT JOIN jobs ON jobs.part = parts.id
 WHERE parts.flow = ?1
 GROUP BY parts.number;
