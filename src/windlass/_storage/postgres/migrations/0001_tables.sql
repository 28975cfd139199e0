-- Instants are timestamptz, on the server's clock. Durations are microseconds (bigint): an interval
-- of days is not the same everywhere. What limits are counted with is microseconds throughout, so
-- that the arithmetic is that of whole numbers. Names are compared byte by byte (COLLATE "C"),
-- whatever the database's own order of letters.

-- state: 0 waiting, 1 running, 2 succeeded, 3 failed, 4 cancelled, 5 discarded.
-- ready: for waiting jobs. 0 due later, 1 in the queue's common line, 2 in its lane, 3 solo.
--
-- Future jobs stay out of the index of the ready ones: a million of them there cost 100 ms per
-- claim. A row is written three times in its life and every time some index follows (the states
-- stand in their conditions), so there are no more indexes than questions; the large columns stand
-- last.
CREATE TABLE jobs (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    ready smallint,
    solo boolean NOT NULL DEFAULT false,
    cancel_requested boolean NOT NULL DEFAULT false,
    priority integer NOT NULL,
    due timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    expires_at timestamptz,
    missed_at timestamptz,
    timeout bigint,
    lane bigint,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    budget integer NOT NULL,
    claim_number integer NOT NULL DEFAULT 0,
    lost integer NOT NULL DEFAULT 0,
    -- How the last ended claim was ended, and by whom: tells a repeated finish from a refused one.
    ended_number integer,
    ended_verb text COLLATE "C",
    ended_by text COLLATE "C",
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    worker text COLLATE "C",
    -- Limits: the gates (a limit's name, or name:key) and what each start costs there, in order.
    gates text[] COLLATE "C",
    costs float8[],
    key text COLLATE "C",
    -- until_started, until_finished or for_a_time; the period is of the last.
    key_window text COLLATE "C",
    key_period bigint,
    backoff text,
    tags text,
    tenant text,
    principal text,
    correlation_id text,
    trace text,
    parent text,
    progress float8,
    progress_note text,
    reason text,
    error_kind text,
    error_message text,
    error_traceback text,
    result bytea,
    payload bytea NOT NULL,

    CONSTRAINT jobs_id UNIQUE (id),
    CHECK (state BETWEEN 0 AND 5),
    CHECK (ready BETWEEN 0 AND 3),
    CHECK ((state = 0) = (ready IS NOT NULL)),
    CHECK ((ready IS NOT DISTINCT FROM 2) = (lane IS NOT NULL)),
    CHECK (lane IS NULL OR gates IS NOT NULL),
    CHECK (cardinality(gates) = cardinality(costs)),
    CHECK (state <> 1 OR (worker IS NOT NULL AND started_at IS NOT NULL AND claim_number > 0)),
    CHECK ((state >= 2) = (finished_at IS NOT NULL)),
    CHECK (attempt BETWEEN 0 AND claim_number),
    CHECK (ended_number <= claim_number),
    CHECK ((key IS NULL) = (key_window IS NULL))
) WITH (
    -- A queue is dead rows with a few live ones between: they go soon, or claims read them all.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

-- Order within a queue: priority, due time, insertion. A lane's and the solo jobs' are the same.
CREATE INDEX jobs_ready ON jobs (queue, priority, due, seq) WHERE ready = 1;
CREATE INDEX jobs_in_lane ON jobs (lane, priority, due, seq) WHERE ready = 2;
CREATE INDEX jobs_solo ON jobs (queue, priority, due, seq) WHERE ready = 3;
CREATE INDEX jobs_scheduled ON jobs (queue, due, seq) WHERE ready = 0;
-- What falls due next in any queue: the promoter asks for it, and there may be a queue per tenant.
-- Whoever asks about one queue must not walk this one, past the jobs of all others: he says
-- "queue BETWEEN q AND q ORDER BY queue, due", which only jobs_scheduled has in order.
CREATE INDEX jobs_due ON jobs (due, seq) WHERE ready = 0;
CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE ready IS NOT NULL AND expires_at IS NOT NULL;
-- A claim looks for lanes of its own queue whose first job has expired.
CREATE INDEX jobs_expiring_in_lane ON jobs (queue, expires_at)
 WHERE ready = 2 AND expires_at IS NOT NULL;
CREATE INDEX jobs_running ON jobs (worker) WHERE state = 1;
CREATE INDEX jobs_finished ON jobs (state, finished_at) WHERE state >= 2;

-- Unique keys while they are held. A row here is the hold; the job keeps its key for people.
CREATE TABLE keys (
    key text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    until timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- The ended claims of a job that did not succeed.
CREATE TABLE history (
    seq bigint NOT NULL,
    claim_number integer NOT NULL,
    attempt integer NOT NULL,
    verb text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL,
    error_kind text,
    error_message text,
    error_traceback text,
    PRIMARY KEY (seq, claim_number)
);

-- One row per worker, so that two workers never rewrite each other's; readers merge.
-- counts: by verb, in the order of `finishing_verbs`. wait and run: by bucket, which is the index
-- of the array; what lies between the first and the last is there, NULL for none.
-- Most writes change the same few rows and no index: room is left for them in their pages.
CREATE TABLE rollups (
    minute timestamptz NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    counts bigint[] NOT NULL,
    wait bigint[] NOT NULL,
    run bigint[] NOT NULL,
    PRIMARY KEY (minute, queue, task, worker)
) WITH (fillfactor = 50);

-- Queues are not made: one exists while jobs name it. A row here says something about it.
CREATE TABLE queues (
    name text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false
);

-- state: live, dead (buried), gone (said goodbye). The lease is microseconds.
CREATE TABLE workers (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    state text COLLATE "C" NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'dead', 'gone')),
    host text NOT NULL,
    pid bigint NOT NULL,
    version text NOT NULL,
    queues text[] NOT NULL,
    slots integer NOT NULL,
    lease bigint NOT NULL,
    lock_boot text NOT NULL,
    lock_device bigint NOT NULL,
    lock_inode bigint NOT NULL,
    started_at timestamptz NOT NULL,
    beat_at timestamptz NOT NULL,
    ended_at timestamptz,
    CHECK ((state = 'live') = (ended_at IS NULL))
) WITH (fillfactor = 50);

CREATE TABLE leaders (
    role text COLLATE "C" PRIMARY KEY,
    worker text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- What may be spent: by limit, and for each gate (a limit and a key) when its bucket is full again.
-- spec: the definition as JSON. The other columns are read from it when it is stored: what one
-- token takes to refill, how many a bucket holds and what those take (microseconds), how many run.
CREATE TABLE limits (
    name text COLLATE "C" PRIMARY KEY,
    spec text NOT NULL,
    spacing bigint,
    burst bigint,
    burst_span bigint,
    concurrency bigint,
    CHECK ((spacing IS NULL) = (burst IS NULL) AND (burst IS NULL) = (burst_span IS NULL))
);

-- spent_until: microseconds since the epoch.
CREATE TABLE gates (
    gate text COLLATE "C" PRIMARY KEY,
    spent_until bigint
) WITH (fillfactor = 50);

-- Which running jobs count against a gate. Only an index: a row counts while its job is running
-- under its claim number, so one that is left behind counts for nothing.
CREATE TABLE holds (
    gate text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    claim_number integer NOT NULL,
    PRIMARY KEY (gate, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- A lane is the line of a queue's ready jobs that need the same gates. It stands in a bay: the
-- place of all lanes of that queue that last waited for the same of one gate (a unit, or so many
-- tokens). A bay is open or closed as a whole, and ordered among the others by its best lane.
-- digest: of the gates, in order; several of them do not fit into an index.
CREATE TABLE lanes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    bay bigint NOT NULL,
    head_priority integer NOT NULL,
    head_due timestamptz NOT NULL,
    head_seq bigint NOT NULL,
    UNIQUE (queue, digest)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE INDEX lanes_in_bay ON lanes (bay, head_priority, head_due, head_seq);

-- cost: the rate tokens the heads of its lanes need, or -1 for those that need a unit of
-- concurrency or have not been looked at yet.
-- opens_at: 0 open, NULL when a unit comes back, else the instant at which the tokens are there,
-- in microseconds since the epoch.
CREATE TABLE bays (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    gate text COLLATE "C" NOT NULL,
    cost float8 NOT NULL,
    opens_at bigint DEFAULT 0,
    head_priority integer NOT NULL,
    head_due timestamptz NOT NULL,
    head_seq bigint NOT NULL,
    UNIQUE (queue, gate, cost),
    CHECK (opens_at >= 0),
    CHECK (opens_at IS NOT NULL OR cost = -1)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE INDEX bays_open ON bays (queue, head_priority, head_due, head_seq) WHERE opens_at = 0;
CREATE INDEX bays_timed ON bays (queue, opens_at) WHERE opens_at > 0;
CREATE INDEX bays_of_gate ON bays (gate, opens_at);
