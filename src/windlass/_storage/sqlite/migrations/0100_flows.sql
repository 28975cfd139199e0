-- Flows: jobs that wait for jobs. A new major version: older workers would end members of flows
-- without counting them.

-- part: the part of a flow that the job belongs to; NULL: it is no member.
-- flow_state: 1 blocked (it waits for other parts), 2 stopped, 3 skipped; NULL: none of these.
-- timing: JSON, what a blocked job was asked for: at or delay, and expires. They count from its turn.
--
-- A blocked job is stored as due after the last instant, so that it is in no line of a claim.
ALTER TABLE jobs ADD COLUMN part INTEGER;
ALTER TABLE jobs ADD COLUMN flow_state INTEGER;
ALTER TABLE jobs ADD COLUMN timing TEXT;

-- None of these is written to for a job that is no member.
CREATE INDEX jobs_of_part ON jobs (part) WHERE part IS NOT NULL;
CREATE INDEX jobs_settled ON jobs (part, flow_state) WHERE flow_state IS NOT NULL;

-- state: running, succeeded, failed, cancelled.
-- last_seq: the number of its last job that was given at its start. Later ones were added by members.
-- expires: the time that it has from its start, or from when it runs again; expires_at: the end of that.
-- swept_part, swept_seq: how far a cancel has reached; NULL: it has reached all, or there was none.
-- sealed: not all of its jobs are stored.
-- going: it is being deleted.
CREATE TABLE flows (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'running',
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    expires_at INTEGER,
    expires INTEGER,
    key TEXT,
    tenant TEXT,
    cancelled INTEGER NOT NULL DEFAULT 0,
    swept_part INTEGER,
    swept_seq INTEGER NOT NULL DEFAULT 0,
    last_seq INTEGER NOT NULL DEFAULT 0,
    sealed INTEGER NOT NULL DEFAULT 0,
    going INTEGER NOT NULL DEFAULT 0,
    CHECK (length(id) = 16),
    CHECK (state IN ('running', 'succeeded', 'failed', 'cancelled')),
    CHECK ((state = 'running') = (ended_at IS NULL))
) STRICT;

CREATE INDEX flows_by_key ON flows (key) WHERE key IS NOT NULL;
CREATE INDEX flows_ended ON flows (state, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX flows_sweeping ON flows (swept_part) WHERE swept_part IS NOT NULL;
CREATE INDEX flows_going ON flows (going) WHERE going = 1;
CREATE INDEX flows_expiring ON flows (expires_at)
 WHERE expires_at IS NOT NULL AND cancelled = 0 AND ended_at IS NULL;

-- Jobs at the same place of a flow, counted; the parts that they wait for, counted (waiting, broken,
-- unneeded); what those that wait for them know of them (tells_…).
-- due: 1 while jobs are to be placed, ended, or blocked again.
CREATE TABLE parts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    flow INTEGER NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    task TEXT NOT NULL,
    runs_when TEXT NOT NULL,
    total INTEGER NOT NULL DEFAULT 0,
    open INTEGER NOT NULL DEFAULT 0,
    blocked INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    stopped INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    waiting INTEGER NOT NULL DEFAULT 0,
    broken INTEGER NOT NULL DEFAULT 0,
    unneeded INTEGER NOT NULL DEFAULT 0,
    tells_over INTEGER NOT NULL DEFAULT 0,
    tells_broken INTEGER NOT NULL DEFAULT 0,
    tells_unneeded INTEGER NOT NULL DEFAULT 0,
    due INTEGER NOT NULL DEFAULT 0,
    UNIQUE (flow, number),
    CHECK (kind IN ('jobs', 'join', 'end', 'callback')),
    CHECK (runs_when IN ('succeeded', 'failed')),
    CHECK (waiting >= 0 AND broken >= 0 AND unneeded >= 0)
) STRICT;

CREATE INDEX parts_due ON parts (due) WHERE due = 1;

-- A part waits for another of its flow. strict: a failure there counts here. In the order given.
CREATE TABLE edges (
    id INTEGER PRIMARY KEY,
    flow INTEGER NOT NULL,
    part INTEGER NOT NULL,
    after INTEGER NOT NULL,
    strict INTEGER NOT NULL
) STRICT;

CREATE INDEX edges_of_part ON edges (flow, part);
CREATE INDEX edges_after ON edges (flow, after);
