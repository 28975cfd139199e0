-- Cool-downs, breakers, settings of queues, jobs that follow a failure.

-- throttled: how often somebody else's limit turned its handler away. on_failure: JSON of FollowUp.
ALTER TABLE jobs ADD COLUMN throttled integer NOT NULL DEFAULT 0, ADD COLUMN on_failure text;

-- Every queue may keep its ended jobs for another time: by queue, so that the many that one keeps
-- do not stand before the few that another is to lose.
DROP INDEX jobs_finished;
CREATE INDEX jobs_finished ON jobs (state, queue, finished_at) WHERE state >= 2;

-- settings: JSON of QueueSettings, NULL for none; max_running is read from it when it is stored.
-- Nothing of the queue starts before cool_until; cool_downs: in a row.
ALTER TABLE queues
    ADD COLUMN settings text,
    ADD COLUMN max_running integer CHECK (max_running > 0),
    ADD COLUMN cool_until timestamptz,
    ADD COLUMN cool_downs integer NOT NULL DEFAULT 0;
-- Whoever finishes jobs asks whether anything is to be forgiven: nearly always this is empty.
CREATE INDEX queues_cooled ON queues (cool_until) WHERE cool_until IS NOT NULL;

-- A breaker: opens after so many failures in a row, for so long (microseconds) by how often it has
-- opened in a row, the last one beyond.
ALTER TABLE limits
    ADD COLUMN failures bigint,
    ADD COLUMN waits bigint[],
    ADD CHECK ((failures IS NULL) = (waits IS NULL));

-- Of the gate of a breaker: in a row; open_until is microseconds since the epoch.
ALTER TABLE gates
    ADD COLUMN failures bigint NOT NULL DEFAULT 0,
    ADD COLUMN opened bigint NOT NULL DEFAULT 0,
    ADD COLUMN open_until bigint;

-- Functions that take or return something else now. What is not changed in that is replaced.
DROP FUNCTION IF EXISTS insert_jobs(
    timestamptz, boolean, boolean, uuid[], text[], text[], integer[], timestamptz[], bigint[],
    integer[], bytea[], bigint[], bigint[], text[], text[], bigint[], text[], text[], text[], text[],
    text[], text[], text[], text[]);
DROP FUNCTION IF EXISTS insert_keyed_jobs(
    text, timestamptz, boolean, uuid[], text[], text[], integer[], timestamptz[], bigint[],
    integer[], bytea[], bigint[], bigint[], text[], text[], bigint[], text[], text[], text[], text[],
    text[], text[], text[], text[]);
DROP FUNCTION IF EXISTS settle_lane(bigint, text, float8, bigint);
DROP FUNCTION IF EXISTS define_limits(
    boolean, text[], text[], bigint[], bigint[], bigint[], bigint[]);
DROP FUNCTION IF EXISTS limit_states(text);
DROP FUNCTION IF EXISTS apply_transition(
    timestamptz, bigint, integer, text, text, bigint, boolean, bytea, text, text, text, integer,
    boolean, boolean, text, boolean);
DROP FUNCTION IF EXISTS apply_transitions(
    timestamptz, boolean, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[], boolean);
DROP FUNCTION IF EXISTS leave_worker(
    timestamptz, boolean, text, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[]);
DROP FUNCTION IF EXISTS prune(timestamptz, smallint, bigint, integer);
