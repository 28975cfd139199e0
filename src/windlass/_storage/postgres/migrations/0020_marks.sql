-- Instants of the whole schema, in microseconds. charged: when something was last taken from a gate;
-- a clock that is behind it was set back.
CREATE TABLE marks (
    name text PRIMARY KEY,
    at bigint NOT NULL
);
