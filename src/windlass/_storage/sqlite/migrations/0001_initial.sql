-- Instants are microseconds since the epoch, on the host's wall clock; leases alone are measured
-- on the clock that counts from boot. Durations are microseconds. Names are text: the file is
-- meant to be looked into.

-- state: 0 waiting, 1 running, 2 succeeded, 3 failed, 4 cancelled, 5 discarded.
-- ready: for waiting jobs. 0 due later, 1 in the queue's common line, 2 in its lane, 3 solo.
--
-- Future jobs stay out of the index of the ready ones: a million of them there cost 100 ms per
-- claim. The large columns stand last, so that reading the others never walks their pages.
-- AUTOINCREMENT: a number is never used again, not even after its row is gone, because claims
-- are fenced by it.
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    state INTEGER NOT NULL DEFAULT 0,
    ready INTEGER,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    budget INTEGER NOT NULL,
    claim_number INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0,
    solo INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    -- How the last ended claim was ended, and by whom: tells a repeated finish from a refused one.
    ended_number INTEGER,
    ended_verb TEXT,
    ended_by TEXT,
    lane INTEGER,
    limits TEXT,
    expires_at INTEGER,
    timeout INTEGER,
    key TEXT,
    key_window TEXT,
    key_period INTEGER,
    missed_at INTEGER,
    backoff TEXT,
    tags TEXT,
    tenant TEXT,
    principal TEXT,
    correlation_id TEXT,
    trace TEXT,
    parent TEXT,
    progress REAL,
    progress_note TEXT,
    reason TEXT,
    error_kind TEXT,
    error_message TEXT,
    error_traceback TEXT,
    result BLOB,
    payload BLOB NOT NULL,

    CHECK (length(id) = 16),
    CHECK (state BETWEEN 0 AND 5),
    CHECK (ready BETWEEN 0 AND 3),
    CHECK ((state = 0) = (ready IS NOT NULL)),
    CHECK ((ready IS 2) = (lane IS NOT NULL)),
    CHECK (ready IS NOT 2 OR limits IS NOT NULL),
    CHECK (state <> 1 OR (worker IS NOT NULL AND started_at IS NOT NULL AND claim_number > 0)),
    CHECK ((state >= 2) = (finished_at IS NOT NULL)),
    CHECK (attempt BETWEEN 0 AND claim_number),
    CHECK (ended_number <= claim_number),
    CHECK ((key IS NULL) = (key_window IS NULL))
) STRICT;

-- Order within a queue: priority, due time, insertion. A lane's and the solo jobs' are the same.
-- Every index ends with the row's own number, seq, without being told.
CREATE INDEX jobs_ready ON jobs (queue, priority, due) WHERE ready = 1;
CREATE INDEX jobs_in_lane ON jobs (lane, priority, due) WHERE ready = 2;
CREATE INDEX jobs_solo ON jobs (queue, priority, due) WHERE ready = 3;
CREATE INDEX jobs_scheduled ON jobs (queue, due) WHERE ready = 0;
-- What falls due next in any queue: the promoter asks for it, and there may be a queue per tenant.
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0;
CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE ready IS NOT NULL AND expires_at IS NOT NULL;
-- A claim looks for lanes of its own queue whose first job has expired.
CREATE INDEX jobs_expiring_in_lane ON jobs (queue, expires_at)
 WHERE ready = 2 AND expires_at IS NOT NULL;
CREATE INDEX jobs_running ON jobs (worker) WHERE state = 1;
CREATE INDEX jobs_finished ON jobs (state, finished_at) WHERE state >= 2;

-- Unique keys while they are held. A row here is the hold; the job keeps its key for people.
CREATE TABLE keys (
    key TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    until INTEGER
) STRICT, WITHOUT ROWID;

-- The ended claims of a job that did not succeed.
CREATE TABLE history (
    seq INTEGER NOT NULL,
    claim_number INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    verb TEXT NOT NULL,
    worker TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    error_kind TEXT,
    error_message TEXT,
    error_traceback TEXT,
    PRIMARY KEY (seq, claim_number)
) STRICT, WITHOUT ROWID;

-- One row per worker, so that two workers never rewrite each other's; readers merge.
-- The counts are JSON: verb or bucket to number.
CREATE TABLE rollups (
    minute INTEGER NOT NULL,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    worker TEXT NOT NULL,
    counts TEXT NOT NULL,
    wait TEXT NOT NULL,
    run TEXT NOT NULL,
    PRIMARY KEY (minute, queue, task, worker)
) STRICT, WITHOUT ROWID;

-- Queues are not made: one exists while jobs name it. A row here says something about it.
CREATE TABLE queues (
    name TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- state: live, dead (buried), gone (said goodbye).
-- A lease is the time since boot, which no one can step, of the boot it was written in.
CREATE TABLE workers (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'dead', 'gone')),
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    queues TEXT NOT NULL,
    slots INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    beat_boot TEXT NOT NULL,
    beat_since_boot INTEGER NOT NULL,
    lock_boot TEXT NOT NULL,
    lock_device INTEGER NOT NULL,
    lock_inode INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at INTEGER NOT NULL,
    ended_at INTEGER,
    CHECK ((state = 'live') = (ended_at IS NULL))
) STRICT;

CREATE TABLE leaders (
    role TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    until_boot TEXT NOT NULL,
    until_since_boot INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What may be spent: by limit, and for each gate (a limit and a key) when its bucket is full again.
CREATE TABLE limits (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE gates (
    gate TEXT PRIMARY KEY,
    spent_until INTEGER
) STRICT, WITHOUT ROWID;

-- Which running jobs count against a gate. Only an index: a row counts while its job is running
-- under its claim number, so one that is left behind counts for nothing.
CREATE TABLE holds (
    gate TEXT NOT NULL,
    seq INTEGER NOT NULL,
    claim_number INTEGER NOT NULL,
    PRIMARY KEY (gate, seq)
) STRICT, WITHOUT ROWID;

-- A lane is the line of a queue's ready jobs that need the same gates. It stands in a bay.
CREATE TABLE lanes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    bay INTEGER NOT NULL,
    head_priority INTEGER NOT NULL,
    head_due INTEGER NOT NULL,
    head_seq INTEGER NOT NULL,
    UNIQUE (queue, key)
) STRICT;

CREATE INDEX lanes_in_bay ON lanes (bay, head_priority, head_due, head_seq);

-- A bay holds a queue's lanes that last waited for the same of one gate, so that they open and
-- close as one. cost: the rate tokens their heads need, or -1 for those that need a unit of
-- concurrency or have not been looked at yet.
-- opens_at: 0 open, NULL when a unit comes back, else the instant at which the tokens are there.
CREATE TABLE bays (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    gate TEXT NOT NULL,
    cost REAL NOT NULL,
    opens_at INTEGER DEFAULT 0,
    head_priority INTEGER NOT NULL,
    head_due INTEGER NOT NULL,
    head_seq INTEGER NOT NULL,
    UNIQUE (queue, gate, cost),
    CHECK (opens_at >= 0),
    CHECK (opens_at IS NOT NULL OR cost = -1)
) STRICT;

CREATE INDEX bays_open ON bays (queue, head_priority, head_due, head_seq) WHERE opens_at = 0;
CREATE INDEX bays_timed ON bays (queue, opens_at) WHERE opens_at > 0;
CREATE INDEX bays_of_gate ON bays (gate, opens_at);
