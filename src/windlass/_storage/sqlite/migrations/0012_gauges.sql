-- CPU, memory and disk of each host, and the size of the storage ('' is its source), by minute.
-- readings: JSON, name to a list of samples, total and peak.
CREATE TABLE gauges (
    minute   INTEGER NOT NULL,
    source   TEXT NOT NULL,
    readings TEXT NOT NULL,
    PRIMARY KEY (minute, source)
) STRICT, WITHOUT ROWID;

-- Minutes that are not merged by the hour yet.
CREATE INDEX gauges_by_minute ON gauges (minute) WHERE minute % 3600000000 <> 0;
