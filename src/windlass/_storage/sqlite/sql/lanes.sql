-- Lanes, the bays they stand in, and the gates they wait for.

-- name: lanes_of
-- The lanes of a queue that have these keys.
SELECT lanes.key, lanes.id, head_priority, head_due, head_seq
  FROM json_each(?2) CROSS JOIN lanes ON lanes.queue = ?1 AND lanes.key = json_each.value;

-- name: add_bays
-- Where there are none, for gates in JSON.
INSERT INTO bays (queue, gate, cost, head_priority, head_due, head_seq)
SELECT ?1, value, ?3, 0, 0, 0 FROM json_each(?2) WHERE true
ON CONFLICT (queue, gate, cost) DO NOTHING;

-- name: add_lanes
-- For keys and gates as pairs in JSON. The heads follow in the same operation, when the lanes are
-- settled.
INSERT INTO lanes (queue, key, bay, head_priority, head_due, head_seq)
SELECT ?1, value ->> 0,
       (SELECT id FROM bays WHERE queue = ?1 AND gate = value ->> 1 AND cost = ?3), 0, 0, 0
  FROM json_each(?2)
RETURNING key, id;

-- name: lanes
-- Lanes with their bays, and the first of the jobs that wait in each.
SELECT lanes.id, lanes.queue, lanes.bay, bays.gate, bays.cost, lanes.head_priority, lanes.head_due,
       lanes.head_seq, jobs.priority, jobs.due, jobs.seq
  FROM json_each(?1)
 CROSS JOIN lanes ON lanes.id = json_each.value
 CROSS JOIN bays ON bays.id = lanes.bay
  LEFT JOIN jobs ON jobs.seq = (SELECT seq FROM jobs WHERE lane = lanes.id AND ready = 2
                                 ORDER BY priority, due, seq LIMIT 1);

-- name: lane_jobs
-- The jobs of a lane after a place in it.
SELECT priority, due, seq, expires_at, CAST(limits AS BLOB) FROM jobs
 WHERE lane = ?1 AND ready = 2 AND (priority, due, seq) > (?2, ?3, ?4)
 ORDER BY priority, due, seq LIMIT ?5;

-- name: move_lane
UPDATE lanes SET bay = ?2, head_priority = ?3, head_due = ?4, head_seq = ?5 WHERE id = ?1;

-- name: move_lanes
UPDATE lanes
   SET bay = column2, head_priority = column3, head_due = column4, head_seq = column5
  FROM (VALUES (?, ?, ?, ?, ?)) AS given
 WHERE id = column1;

-- name: remove_lanes
DELETE FROM lanes WHERE id IN (SELECT value FROM json_each(?1));

-- name: bay_of
SELECT id FROM bays WHERE queue = ?1 AND gate = ?2 AND cost = ?3;

-- name: bay_heads
-- Bays, each with its best lane; without one, if no lane is left in it.
SELECT json_each.value, head_priority, head_due, head_seq
  FROM json_each(?1)
  LEFT JOIN lanes ON lanes.id = (SELECT id FROM lanes WHERE bay = json_each.value
                                  ORDER BY head_priority, head_due, head_seq LIMIT 1);

-- part: first_jobs
-- The first job of a lane and the one behind it.
       head.priority, head.due, head.seq, head.expires_at, CAST(head.limits AS BLOB),
       following.priority, following.due, following.seq, following.expires_at,
       CAST(following.limits AS BLOB)

-- part: lane_columns
SELECT lanes.head_priority, lanes.head_due, lanes.head_seq, lanes.id,
-- include: first_jobs

-- part: following
  LEFT JOIN jobs AS following
    ON following.seq = (SELECT seq FROM jobs
                         WHERE lane = head.lane AND ready = 2
                           AND (priority, due, seq) > (head.priority, head.due, head.seq)
                         ORDER BY priority, due, seq LIMIT 1)

-- part: its_jobs
  LEFT JOIN jobs AS head
    ON head.seq = (SELECT seq FROM jobs WHERE lane = lanes.id AND ready = 2
                    ORDER BY priority, due, seq LIMIT 1)
-- include: following

-- name: bay_lanes
-- The lanes of a bay after a place in it.
-- include: lane_columns
  FROM lanes
-- include: its_jobs
 WHERE lanes.bay = ?1 AND (lanes.head_priority, lanes.head_due, lanes.head_seq) > (?2, ?3, ?4)
 ORDER BY lanes.head_priority, lanes.head_due, lanes.head_seq LIMIT ?5;

-- name: head_bay
UPDATE bays SET head_priority = ?2, head_due = ?3, head_seq = ?4 WHERE id = ?1;

-- name: head_bays
UPDATE bays SET head_priority = column2, head_due = column3, head_seq = column4
  FROM (VALUES (?, ?, ?, ?)) AS given
 WHERE id = column1;

-- name: remove_bays
DELETE FROM bays WHERE id IN (SELECT value FROM json_each(?1));

-- name: close_bay
UPDATE bays SET opens_at = ?2 WHERE id = ?1;

-- name: close_bays
UPDATE bays SET opens_at = column2 FROM (VALUES (?, ?)) AS given WHERE id = column1;

-- name: open_bays
-- The open bays of a queue after a place, each with its first lane and whether that is alone. The
-- lane is the one of the job that the bay has at its head: without one, if there is no such job.
SELECT bays.head_priority, bays.head_due, bays.head_seq, head.lane,
-- include: first_jobs
     , bays.id, bays.gate, bays.cost,
       NOT EXISTS (SELECT 1 FROM lanes
                    WHERE lanes.bay = bays.id
                      AND (lanes.head_priority, lanes.head_due, lanes.head_seq)
                          > (bays.head_priority, bays.head_due, bays.head_seq))
  FROM bays
  LEFT JOIN jobs AS head ON head.seq = bays.head_seq AND head.ready = 2
-- include: following
 WHERE bays.queue = ?1 AND bays.opens_at = 0
   AND (bays.head_priority, bays.head_due, bays.head_seq) > (?2, ?3, ?4)
 ORDER BY bays.head_priority, bays.head_due, bays.head_seq LIMIT ?5;

-- name: expired_heads
-- Lanes whose first job has expired, also in closed bays: behind it may stand one that needs less.
-- A bounded number of them; those behind others are left to upkeep.
SELECT lanes.id
  FROM (SELECT seq, lane FROM jobs
         WHERE queue = ?1 AND ready = 2 AND expires_at IS NOT NULL AND expires_at <= ?2
         ORDER BY expires_at LIMIT ?3) AS late
 CROSS JOIN lanes ON lanes.id = late.lane AND lanes.head_seq = late.seq;

-- name: named_lanes
-- include: lane_columns
  FROM json_each(?1)
 CROSS JOIN lanes ON lanes.id = json_each.value
-- include: its_jobs
;

-- name: open_timed
-- The tokens these bays wait for are there.
UPDATE bays SET opens_at = 0
 WHERE id IN (SELECT id FROM bays WHERE queue = ?1 AND opens_at > 0 AND opens_at <= ?2
               ORDER BY opens_at LIMIT ?3);

-- name: next_timed
SELECT opens_at FROM bays WHERE queue = ?1 AND opens_at > 0 ORDER BY opens_at LIMIT 1;

-- name: open_gates
-- Units have come back. Few bays, however many lanes: one per gate and queue that uses it.
UPDATE bays SET opens_at = 0
 WHERE gate IN (SELECT value FROM json_each(?1)) AND opens_at IS NULL;

-- name: open_wholly
-- For any wait: the gate is as if nothing had been taken, or its breaker has closed.
UPDATE bays SET opens_at = 0
 WHERE gate IN (SELECT value FROM json_each(?1)) AND opens_at IS NOT 0;

-- name: open_limit
-- All gates of a limit: the one without a key, and those whose names continue with a colon.
UPDATE bays SET opens_at = 0 WHERE gate = ?1 OR (gate >= ?1 || ':' AND gate < ?1 || ';');

-- name: timed_bays
-- A bounded number of them for each gate.
SELECT bays.gate, bays.id, bays.cost
  FROM json_each(?1)
 CROSS JOIN bays ON bays.id IN (SELECT id FROM bays WHERE gate = json_each.value AND opens_at > 0
                                 ORDER BY opens_at LIMIT ?2);

-- name: spec
SELECT spec FROM limits WHERE name = ?1;

-- name: gates
-- Those of these gates that are listed.
SELECT gate, spent_until, failures, opened, open_until FROM gates
 WHERE gate IN (SELECT value FROM json_each(?1));

-- name: set_breaker
INSERT INTO gates (gate, failures, opened, open_until) VALUES (?, ?, ?, ?)
ON CONFLICT (gate) DO UPDATE
   SET failures = excluded.failures, opened = excluded.opened, open_until = excluded.open_until;

-- name: gate
SELECT spent_until, failures, opened, open_until FROM gates WHERE gate = ?1;

-- name: reset_gate
UPDATE gates SET spent_until = NULL, failures = 0, opened = 0, open_until = NULL WHERE gate = ?1;

-- name: usage
-- What the running rows say. The plus keeps the planner from the index of running jobs.
SELECT count(*) FROM holds JOIN jobs ON jobs.seq = holds.seq
 WHERE holds.gate = ?1 AND jobs.claim_number = holds.claim_number AND +jobs.state = 1;

-- name: usages
-- The same for many gates, and whether each is listed.
SELECT json_each.value,
       (SELECT count(*) FROM holds JOIN jobs ON jobs.seq = holds.seq
         WHERE holds.gate = json_each.value AND jobs.claim_number = holds.claim_number
           AND +jobs.state = 1),
       EXISTS (SELECT 1 FROM gates WHERE gate = json_each.value)
  FROM json_each(?1);

-- name: charged
SELECT at FROM marks WHERE name = 'charged';

-- name: mark_charged
INSERT INTO marks (name, at) VALUES ('charged', ?1)
ON CONFLICT (name) DO UPDATE SET at = excluded.at;

-- name: set_gates_back
UPDATE gates SET spent_until = spent_until - ?1, open_until = open_until - ?1;

-- name: set_rests_back
UPDATE queues SET cool_until = cool_until - ?1 WHERE cool_until IS NOT NULL;

-- name: open_all
UPDATE bays SET opens_at = 0 WHERE opens_at > 0;

-- name: spend
INSERT INTO gates (gate, spent_until) VALUES (?, ?)
ON CONFLICT (gate) DO UPDATE SET spent_until = excluded.spent_until;

-- name: know_gate
-- A gate without a rate spends nothing; it is listed all the same.
INSERT INTO gates (gate) VALUES (?) ON CONFLICT (gate) DO NOTHING;

-- name: hold
INSERT INTO holds (gate, seq, claim_number) VALUES (?, ?, ?)
ON CONFLICT (gate, seq) DO UPDATE SET claim_number = excluded.claim_number;

-- name: let_go
DELETE FROM holds WHERE (gate, seq) IN (VALUES (?, ?));

-- name: define
INSERT INTO limits (name, spec) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec;

-- name: specs
SELECT spec FROM limits ORDER BY name;

-- name: debts
SELECT gate, spent_until FROM gates
 WHERE (gate = ?1 OR (gate >= ?1 || ':' AND gate < ?1 || ';')) AND spent_until > ?2;

-- name: gates_of_limit
SELECT gate, spent_until, failures, opened, open_until FROM gates
 WHERE gate = ?1 OR (gate >= ?1 || ':' AND gate < ?1 || ';')
 ORDER BY gate;

-- name: breakers
-- With what runs, as `usage` counts it.
SELECT gate, failures, opened, open_until,
       (SELECT count(*) FROM holds JOIN jobs ON jobs.seq = holds.seq
         WHERE holds.gate = gates.gate AND jobs.claim_number = holds.claim_number
           AND +jobs.state = 1)
  FROM gates
 WHERE gate IN (SELECT value FROM json_each(?1));

-- name: parked
-- Lanes in closed bays of a gate.
SELECT count(*) FROM bays JOIN lanes ON lanes.bay = bays.id
 WHERE bays.gate = ?1 AND bays.opens_at IS NOT 0;

-- name: gates_after
SELECT gate, spent_until, failures FROM gates WHERE gate > ?1 ORDER BY gate LIMIT ?2;

-- name: forget_gate
DELETE FROM gates WHERE gate = ?1;
