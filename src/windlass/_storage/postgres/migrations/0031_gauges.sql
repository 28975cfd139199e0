-- CPU, memory and disk of each host, and the size of the storage ('' is its source), by minute.
-- minute: minutes since 1970. readings: name to a list of samples, total and peak.
CREATE TABLE gauges (
    minute bigint NOT NULL,
    source text NOT NULL,
    readings jsonb NOT NULL,
    PRIMARY KEY (minute, source)
);

-- Minutes that are not merged by the hour yet.
CREATE INDEX gauges_by_minute ON gauges (minute) WHERE minute % 60 <> 0;

-- Take one argument more, which older workers do not give.
DROP FUNCTION IF EXISTS beat(timestamptz, text, bigint);
DROP FUNCTION IF EXISTS read_events(timestamptz, timestamptz, bigint, uuid);
