-- Flows: jobs that wait for jobs. A new major version: workers of the versions before do not know what a
-- member's run needs, and claim nothing here.

-- state: 0 running, 1 succeeded, 2 failed, 3 cancelled.
--   holds_key   no other flow with this key runs
--   expires     the time that it has from its start, or from when it runs again, microseconds
--   attend_at   when settling is to look at the flow: its expiry, or at once while members of a
--               cancelled flow have not ended. NULL: never
--   sealed      not all of its jobs are stored
--   gone        its deletion has begun
CREATE TABLE flows (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    state smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3),
    cancelled boolean NOT NULL DEFAULT false,
    holds_key boolean NOT NULL DEFAULT false,
    sealed boolean NOT NULL DEFAULT false,
    gone boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    ended_at timestamptz,
    expires bigint,
    expires_at timestamptz,
    attend_at timestamptz,
    name text NOT NULL,
    key text COLLATE "C",
    tenant text,
    CHECK ((state > 0) = (ended_at IS NOT NULL))
);

CREATE UNIQUE INDEX flows_key ON flows (key) WHERE holds_key;
-- Of these members may wait that must not start: there are nearly always none.
CREATE INDEX flows_cancelled ON flows (number) WHERE cancelled AND state = 0;
CREATE INDEX flows_attended ON flows (attend_at) WHERE attend_at IS NOT NULL;
CREATE INDEX flows_ended ON flows (state, ended_at) WHERE ended_at IS NOT NULL;

-- The parts of flows: what the row says is guarded by the lock on the flow's row.
--   kind      0 jobs, 1 join, 2 end, 3 callback
--   failed    it runs on a failure of what it waits for
--   after, strict          the numbers of the parts that it waits for, and whether a failure counts here
--   feeds, feeds_strict    the parts that wait for it, and whether a failure here counts there
--   waiting, broken, unneeded   of the parts that it waits for: `Gate` in _core/flows/part.py
--   told_…    what it told its followers last
--   due       jobs of it are to be placed, ended or blocked again
CREATE TABLE parts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    flow bigint NOT NULL,
    flow_id uuid NOT NULL,
    number integer NOT NULL,
    kind smallint NOT NULL,
    failed boolean NOT NULL,
    due boolean NOT NULL DEFAULT false,
    told_over boolean NOT NULL DEFAULT false,
    told_broken boolean NOT NULL DEFAULT false,
    told_unneeded boolean NOT NULL DEFAULT false,
    waiting integer NOT NULL CHECK (waiting >= 0),
    broken integer NOT NULL DEFAULT 0 CHECK (broken >= 0),
    unneeded integer NOT NULL DEFAULT 0 CHECK (unneeded >= 0),
    name text NOT NULL,
    task text NOT NULL,
    after integer[] NOT NULL,
    strict boolean[] NOT NULL,
    feeds integer[] NOT NULL,
    feeds_strict boolean[] NOT NULL,
    UNIQUE (flow, number)
) WITH (fillfactor = 70);

CREATE INDEX parts_due ON parts (id) WHERE due;

-- How many jobs of a part are where. Every end of a member changes this row, and no index.
CREATE TABLE part_counts (
    part bigint PRIMARY KEY,
    total integer NOT NULL CHECK (total >= 0),
    open integer NOT NULL CHECK (open >= 0),
    blocked integer NOT NULL CHECK (blocked >= 0),
    succeeded integer NOT NULL DEFAULT 0 CHECK (succeeded >= 0),
    failed integer NOT NULL DEFAULT 0 CHECK (failed >= 0),
    cancelled integer NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
    stopped integer NOT NULL DEFAULT 0 CHECK (stopped >= 0),
    skipped integer NOT NULL DEFAULT 0 CHECK (skipped >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Ends that are not counted yet, because their transactions must not wait for their parts: see
-- `fold_ends`. was and now: as in `count_members`.
CREATE TABLE member_ends (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    part bigint NOT NULL,
    was smallint,
    now smallint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- ready, of members: 4 blocked; of ended ones 5 stopped, 6 skipped.
--   added           another member of the part added it
--   delay, expires  counted from when it is placed, microseconds
-- One check in place of two: each one is read anew by every statement that writes jobs.
ALTER TABLE jobs
    ADD COLUMN part bigint,
    ADD COLUMN added boolean,
    ADD COLUMN delay bigint,
    ADD COLUMN expires bigint,
    DROP CONSTRAINT jobs_ready_check,
    DROP CONSTRAINT jobs_check,
    ADD CONSTRAINT jobs_check CHECK ((state = 0) = (coalesce(ready, 5) < 5)) NOT VALID;

CREATE INDEX jobs_of_part ON jobs (part, ready, seq) WHERE part IS NOT NULL;
CREATE INDEX jobs_blocked ON jobs (queue) WHERE ready = 4;

-- They take or answer something more.
DROP FUNCTION IF EXISTS apply_transition(
    timestamptz, bigint, integer, text, text, bigint, boolean, bytea, text, text, text, integer,
    boolean, boolean, text, boolean, bigint[], boolean, boolean, text, boolean, text);
DROP FUNCTION IF EXISTS apply_transitions(
    timestamptz, boolean, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], boolean, text[],
    boolean[], text[], integer[], text[], boolean[], text[]);
DROP FUNCTION IF EXISTS apply_rest(
    timestamptz, boolean, bigint[], bigint[], integer, text, bytea, boolean);
DROP FUNCTION IF EXISTS apply_successes(timestamptz, boolean, bigint[], integer, text, bytea);
DROP FUNCTION IF EXISTS delete_successes(timestamptz, boolean, bigint[], integer, text);
DROP FUNCTION IF EXISTS leave_worker(
    timestamptz, boolean, text, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], text[], boolean[],
    text[], integer[], text[], boolean[], text[]);
DROP FUNCTION IF EXISTS end_waiting(bigint[], integer, text, timestamptz);
DROP FUNCTION IF EXISTS order_one(
    text, bigint, timestamptz, text, timestamptz, integer, text);
DROP FUNCTION IF EXISTS insert_jobs(
    timestamptz, boolean, boolean, uuid[], text[], text[], integer[], timestamptz[], bigint[],
    integer[], bytea[], bigint[], bigint[], text[], text[], bigint[], text[], text[], text[], text[],
    text[], text[], text[], text[], text[], text[], boolean, text[], boolean);
DROP FUNCTION IF EXISTS insert_listed(timestamptz, boolean, json, boolean, boolean);
