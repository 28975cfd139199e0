-- Schedules. What one means is in its body, which is text to us.

CREATE TABLE schedules (
    name        TEXT PRIMARY KEY NOT NULL,
    revision    INTEGER NOT NULL,
    next_at     INTEGER,
    declared_at INTEGER,
    -- Last, because it is large.
    body        TEXT NOT NULL
) STRICT;

CREATE INDEX schedules_due ON schedules (next_at, name) WHERE next_at IS NOT NULL;
