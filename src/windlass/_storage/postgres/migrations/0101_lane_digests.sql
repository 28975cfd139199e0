-- A lane's row is written with every claim from it. Its digest never changes, and an entry for it in an
-- index cost as much as half of the rest: it is looked up here. Both rows come and go together.
CREATE TABLE lane_digests (
    queue text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    lane bigint NOT NULL,
    PRIMARY KEY (queue, digest)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Waits for all that have read or written lanes. No other lock is taken: who waits here may hold some.
ALTER TABLE lanes DROP CONSTRAINT lanes_queue_digest_key;

INSERT INTO lane_digests (queue, digest, lane) SELECT queue, digest, id FROM lanes;

-- Jobs of lanes that no gate refuses are started together: these take or answer something else. Every claim
-- that calls them has read lanes before, and so has ended, or calls the new ones.
DROP FUNCTION IF EXISTS next_in_lanes(
    text, integer, integer, timestamptz, bigint[], integer[], timestamptz[]);
DROP FUNCTION IF EXISTS read_gates(text[], bigint);
DROP FUNCTION IF EXISTS start_limited(bigint[], text, timestamptz, record, record);
DROP FUNCTION IF EXISTS serve_lanes(
    text, integer, text, timestamptz, text[], bigint[], integer[], timestamptz[]);
