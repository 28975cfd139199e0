-- Instants of the whole database. charged: when something was last taken from a gate; a clock that
-- is behind it was set back.
CREATE TABLE marks (
    name TEXT PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
