-- What people ask, what they order, and what is written down about jobs.

-- error_frame: where the last error was raised (core/fault.py); NULL for those of an older release.
ALTER TABLE jobs ADD COLUMN error_frame text;

-- Neither is touched by a job that is enqueued, claimed and succeeds. Retrying: it waits, and an
-- attempt was spent since it was enqueued or requeued.
CREATE INDEX jobs_retrying ON jobs (queue, seq)
 WHERE ready IS NOT NULL AND attempt > max_attempts - budget;
CREATE INDEX jobs_failed ON jobs (finished_at, seq) WHERE state = 3;

-- tasks: what it can run. clock: its own, when it registered. memory: bytes, at its last beat that
-- said so.
ALTER TABLE workers
    ADD COLUMN tasks text[] NOT NULL DEFAULT '{}',
    ADD COLUMN clock timestamptz,
    ADD COLUMN memory bigint;

-- Who ordered what. id: made by whoever orders. answers: one per job, for whoever asks again.
CREATE TABLE audits (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    at timestamptz NOT NULL,
    who text NOT NULL,
    what text NOT NULL,
    subject text COLLATE "C" NOT NULL,
    detail text NOT NULL,
    count bigint NOT NULL,
    answers text[]
);

CREATE INDEX audits_at ON audits (at);
-- A subject may be a filter in words, which does not fit into an index.
CREATE INDEX audits_subject ON audits (hashtextextended(subject, 0), number);

-- Lines that a run logged, in chunks as they came: JSON, which is nothing to the server. Not bound
-- to their job by a foreign key: appending would lock it, and a claim passes by what is locked.
CREATE TABLE logs (
    seq bigint NOT NULL,
    claim_number integer NOT NULL,
    number integer NOT NULL,
    lines text NOT NULL,
    PRIMARY KEY (seq, claim_number, number)
);

-- The event log. number: as they were kept.
CREATE TABLE events (
    at timestamptz NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    seq bigint NOT NULL,
    attempt integer NOT NULL,
    kind text NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    worker text NOT NULL,
    PRIMARY KEY (at, number)
);

CREATE INDEX events_of_job ON events (seq, at, number);

-- Which jobs are asked for: JobFilter in storage/looks.py. NULL does not narrow. tag is JSON, as it
-- stands in jobs.tags. words: JobFilter.text.
CREATE TYPE job_filter AS (
    states smallint[],
    shown text[],
    queue text,
    task text,
    tenant text,
    principal text,
    tag text,
    key text,
    correlation_id text,
    parent text,
    worker text,
    error text,
    frame text,
    created_from timestamptz,
    created_until timestamptz,
    finished_from timestamptz,
    finished_until timestamptz,
    words text
);

-- Functions that take something more now, all of it optional: older workers go on calling them.
DROP FUNCTION IF EXISTS beat(timestamptz, text);
DROP FUNCTION IF EXISTS pause(text, boolean);
DROP FUNCTION IF EXISTS change_queue(text, text, integer, text);
DROP FUNCTION IF EXISTS warm_queue(text);
DROP FUNCTION IF EXISTS set_gate(timestamptz, boolean, text, text, boolean);
DROP FUNCTION IF EXISTS define_limits(
    boolean, text[], text[], bigint[], bigint[], bigint[], bigint[], bigint[], text[], timestamptz);
DROP FUNCTION IF EXISTS write_schedules(
    timestamptz, boolean, text[], bigint[], text[], timestamptz[], text[], text[], integer[]);
DROP FUNCTION IF EXISTS apply_transition(
    timestamptz, bigint, integer, text, text, bigint, boolean, bytea, text, text, text, integer,
    boolean, boolean, text, boolean, bigint[], boolean, boolean);
DROP FUNCTION IF EXISTS apply_transitions(
    timestamptz, boolean, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], boolean, text[],
    boolean[], text[], integer[]);
DROP FUNCTION IF EXISTS leave_worker(
    timestamptz, boolean, text, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], text[], boolean[],
    text[], integer[]);

-- What `order_jobs` does now. Only people called them, no worker.
DROP FUNCTION IF EXISTS requeue(timestamptz, uuid[]);
DROP FUNCTION IF EXISTS discard(timestamptz, uuid[], text);
DROP FUNCTION IF EXISTS run_now(timestamptz, uuid[]);
DROP FUNCTION IF EXISTS require(uuid[], smallint[]);
