-- Schedules. What one means is in its body, which is text to us.

CREATE TABLE schedules (
    name text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,
    next_at timestamptz,
    declared_at timestamptz,
    body text COLLATE "C" NOT NULL,

    CHECK (revision > 0)
);

CREATE INDEX schedules_due ON schedules (next_at, name) WHERE next_at IS NOT NULL;
