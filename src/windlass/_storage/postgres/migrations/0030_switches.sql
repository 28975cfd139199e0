-- What operators have switched off for the whole storage, and since when: 'schedules'.
CREATE TABLE switches (
    name text PRIMARY KEY,
    at timestamptz NOT NULL
);

-- Answers one column more.
DROP FUNCTION IF EXISTS due_schedules(timestamptz, bigint);
