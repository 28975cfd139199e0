-- Operating: orders and who gave them, log lines, events, error groups, what workers say.

-- Where the last error was raised: says something only while there is an error.
ALTER TABLE jobs ADD COLUMN error_frame TEXT;

-- Two indexes that the way of a job that succeeds at once never writes to.
-- Those that wait after an attempt was spent. The columns of its condition are in it, so that they
-- are counted without a look at any row.
CREATE INDEX jobs_retrying ON jobs (queue, ready, attempt, max_attempts, budget)
 WHERE ready IS NOT NULL AND attempt > max_attempts - budget;
-- Failed jobs by time, with all that groups them: their rows are large.
CREATE INDEX jobs_failed ON jobs (finished_at, seq, error_kind, error_frame, queue, task)
 WHERE state = 3;

ALTER TABLE workers ADD COLUMN tasks TEXT NOT NULL DEFAULT '[]';
ALTER TABLE workers ADD COLUMN clock INTEGER;
ALTER TABLE workers ADD COLUMN memory INTEGER;

-- answers: JSON, what the order was answered for each job: a repeated one is answered the same.
CREATE TABLE audits (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    id      TEXT NOT NULL UNIQUE,
    at      INTEGER NOT NULL,
    who     TEXT NOT NULL,
    what    TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail  TEXT NOT NULL,
    count   INTEGER NOT NULL,
    answers TEXT NOT NULL
) STRICT;

CREATE INDEX audits_of_subject ON audits (subject);
CREATE INDEX audits_by_time ON audits (at);

-- lines: JSON, a list of instant, level and text each. With a number of their own: large rows
-- inside of an index are slow.
CREATE TABLE logs (
    id           INTEGER PRIMARY KEY,
    seq          INTEGER NOT NULL,
    claim_number INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    lines        TEXT NOT NULL,
    UNIQUE (seq, claim_number, number)
) STRICT;

CREATE TABLE events (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    task    TEXT NOT NULL,
    queue   TEXT NOT NULL,
    worker  TEXT NOT NULL,
    attempt INTEGER NOT NULL
) STRICT;

CREATE INDEX events_by_time ON events (at);
CREATE INDEX events_of_job ON events (seq, at);

-- Rollups that are not merged by the hour yet: '' is the worker of those that are, '(copied)' of
-- those that another storage had.
CREATE INDEX rollups_by_minute ON rollups (minute)
 WHERE minute % 3600000000 <> 0 OR worker NOT IN ('', '(copied)');
