-- Finding jobs by what people ask for.
--
-- `walk` and `among` say of each row they visit whether it matches; the reader stops when
-- enough were found or looked at. Words are not compared here but with what a row shows of itself,
-- in Python: `texts` is read of what matches.
-- In :mask each bit is a shown state: 0 scheduled, 1 to 5 as the state, 6 ready, 7 retrying.
--
-- The statements from `ready` to `ended` name what an index knows, a bounded number. A queue is asked
-- for as a range from ?1 to ?2: from it to itself, or from '' to a blob, which sorts after all
-- text.

-- part: judged
-- Of every row whether it matches.
SELECT seq, created_at, length(payload),
       CASE WHEN (:mask >> CASE WHEN state <> 0 THEN state
                                WHEN attempt > max_attempts - budget THEN 7
                                WHEN due > :now THEN 0
                                ELSE 6 END) & 1
             AND (:queue IS NULL OR queue = :queue)
             AND (:task IS NULL OR task = :task)
             AND (:tenant IS NULL OR tenant = :tenant)
             AND (:principal IS NULL OR principal = :principal)
             AND (:key IS NULL OR key = :key)
             AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
             AND (:parent IS NULL OR parent = :parent)
             AND (:worker IS NULL OR worker = :worker)
             AND (:flow IS NULL
                  OR part IN (SELECT parts.id
                                FROM flows JOIN parts ON parts.flow = flows.number
                               WHERE flows.id = :flow AND flows.going = 0))
             AND (:created_from IS NULL OR created_at >= :created_from)
             AND (:created_until IS NULL OR created_at < :created_until)
             AND (:finished_from IS NULL OR finished_at >= :finished_from)
             AND (:finished_until IS NULL OR finished_at < :finished_until)
             AND (:error IS NULL OR error_kind = :error)
             AND (:frame IS NULL
                  OR (error_kind IS NOT NULL AND coalesce(error_frame, '') = :frame))
             AND (:tag IS NULL
                  OR (json_valid(tags)
                      AND EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :tag)))
            THEN 1 END

-- name: walk
-- Newest first.
-- include: judged
  FROM jobs
 WHERE seq < :before
 ORDER BY seq DESC LIMIT :look;

-- name: among
-- In the order of the numbers given.
-- include: judged
  FROM (SELECT value AS wanted FROM json_each(:seqs)) CROSS JOIN jobs ON jobs.seq = wanted;

-- name: texts
-- What a search reads of rows, in the order of the numbers given.
SELECT payload, tags, error_kind, error_message
  FROM (SELECT value AS wanted FROM json_each(?1)) CROSS JOIN jobs ON jobs.seq = wanted;

-- name: named
-- By the index of ids alone. ?3: from behind the first one.
SELECT id FROM jobs WHERE id >= ?1 AND id <= ?2 AND id > CASE WHEN ?3 THEN ?1 ELSE x'' END
 ORDER BY id LIMIT ?4;

-- name: newest
SELECT id, seq FROM jobs WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2;

-- name: ready
SELECT seq FROM jobs WHERE ready = 1 AND queue >= ?1 AND queue <= ?2 LIMIT ?3;

-- name: solo
SELECT seq FROM jobs WHERE ready = 3 AND queue >= ?1 AND queue <= ?2 LIMIT ?3;

-- name: later
-- Not marked ready: due later, or not met yet since.
SELECT seq FROM jobs WHERE ready = 0 AND queue >= ?1 AND queue <= ?2 LIMIT ?3;

-- name: overdue
-- Of all queues: those that are due and not marked ready yet are few.
SELECT seq FROM jobs WHERE ready = 0 AND due <= ?1 LIMIT ?2;

-- name: in_lanes
SELECT jobs.seq
  FROM lanes CROSS JOIN jobs ON jobs.lane = lanes.id AND jobs.ready = 2
 WHERE lanes.queue >= ?1 AND lanes.queue <= ?2 LIMIT ?3;

-- name: retrying
SELECT seq FROM jobs
 WHERE ready IS NOT NULL AND attempt > max_attempts - budget AND queue >= ?1 AND queue <= ?2
 LIMIT ?3;

-- name: running
-- No more than the slots of all workers, but the claims of dead ones.
SELECT seq FROM jobs WHERE state = 1 AND worker >= ?1 AND worker <= ?2 LIMIT ?3;

-- name: ended
-- From one queue to the next by the index, and of each what ended in time. ?2: of this queue only.
WITH RECURSIVE ended (name) AS (
    SELECT coalesce(?2, (SELECT min(queue) FROM jobs WHERE state >= 2 AND state = ?1))
    UNION ALL
    SELECT (SELECT min(queue) FROM jobs WHERE state >= 2 AND state = ?1 AND queue > ended.name)
      FROM ended WHERE ended.name IS NOT NULL AND ?2 IS NULL
)
SELECT jobs.seq
  FROM ended CROSS JOIN jobs
 WHERE jobs.state >= 2 AND jobs.state = ?1 AND jobs.queue = ended.name
   AND jobs.finished_at >= ?3 AND jobs.finished_at < ?4
 LIMIT ?5;

-- name: of_flow
-- The newest below ?2, up to ?3: of each part as many, from its index, and of all the best.
SELECT value
  FROM flows
  JOIN parts ON parts.flow = flows.number
 CROSS JOIN json_each((SELECT json_group_array(seq)
                         FROM (SELECT seq FROM jobs WHERE part = parts.id AND seq < ?2
                                ORDER BY seq DESC LIMIT ?3)))
 WHERE flows.id = ?1 AND flows.going = 0
 ORDER BY value DESC LIMIT ?3;

-- name: of_flow_oldest
-- The same of the oldest above ?2.
SELECT value
  FROM flows
  JOIN parts ON parts.flow = flows.number
 CROSS JOIN json_each((SELECT json_group_array(seq)
                         FROM (SELECT seq FROM jobs WHERE part = parts.id AND seq > ?2
                                ORDER BY seq LIMIT ?3)))
 WHERE flows.id = ?1 AND flows.going = 0
 ORDER BY value LIMIT ?3;

-- name: created
-- In the order of the numbers given.
SELECT created_at, seq
  FROM (SELECT value AS wanted FROM json_each(?1)) CROSS JOIN jobs ON jobs.seq = wanted;

-- name: holder
SELECT seq FROM keys WHERE key = ?1 AND (until IS NULL OR until > ?2);

-- name: failed
-- What failed last: all of it is in the index.
SELECT seq, finished_at, error_kind, error_frame, queue, task
  FROM jobs
 WHERE state = 3 AND finished_at >= ?1
 ORDER BY finished_at DESC, seq DESC LIMIT ?2;

-- name: faults
SELECT seq, id, error_message FROM jobs WHERE seq IN (SELECT value FROM json_each(?1));
