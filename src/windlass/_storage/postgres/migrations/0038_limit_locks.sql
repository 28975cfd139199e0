-- Limits are locked one by one: which limits the lanes of a queue may need. A row may outlive its
-- lanes. It is written under the limit's lock, before the first such lane.
CREATE TABLE lane_limits (
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (queue, name)
);

-- The lock that all changes of lanes took before.
SELECT pg_advisory_xact_lock(to_regnamespace(quote_ident(current_schema))::oid::integer, 1);

INSERT INTO lane_limits (queue, name)
SELECT DISTINCT j.queue, split_part(g, ':', 1)
  FROM jobs j CROSS JOIN LATERAL unnest(j.gates) AS g
 WHERE j.ready = 2
UNION SELECT b.queue, split_part(b.gate, ':', 1) FROM bays b;

-- A lane that has not been refused stands in no bay: then one row is written for it, not two.
ALTER TABLE lanes ALTER COLUMN bay DROP NOT NULL;
DROP INDEX lanes_in_bay;
CREATE INDEX lanes_in_bay ON lanes (bay, head_priority, head_due, head_seq) WHERE bay IS NOT NULL;
CREATE INDEX lanes_open ON lanes (queue, head_priority, head_due, head_seq) WHERE bay IS NULL;

-- It is updated where it can be locked at once, and so it must be there.
INSERT INTO marks (name, at) VALUES ('charged', 0) ON CONFLICT DO NOTHING;

-- One lock for all limits, and lanes that were settled one by one.
DROP FUNCTION IF EXISTS lock_lanes();
DROP FUNCTION IF EXISTS find_bay(text, text, float8);
DROP FUNCTION IF EXISTS find_lane(text, text[]);
DROP FUNCTION IF EXISTS settle_bay(bigint);
DROP FUNCTION IF EXISTS settle_lane(bigint, text, float8, bigint, bigint[]);

-- Their arguments or results change.
DROP FUNCTION IF EXISTS claim_locks(text[], timestamptz);
DROP FUNCTION IF EXISTS
    claim_jobs(timestamptz, text, text[], integer[], integer, boolean, integer, bigint, boolean);
DROP FUNCTION IF EXISTS promote_some(text, integer, timestamptz, boolean, timestamptz);
DROP FUNCTION IF EXISTS place_waiting(bigint[], timestamptz);
DROP FUNCTION IF EXISTS visit_lanes(
    text, integer, text, timestamptz, bigint[], integer[], timestamptz[]);

-- A function of the version before that waited for the lock above continues with its old text, and
-- calls these. Its caller repeats an operation that fails so.
DO $do$
DECLARE
    v_function text;
BEGIN
    FOREACH v_function IN ARRAY ARRAY[
        'lock_lanes() RETURNS void',
        'find_bay(text, text, float8) RETURNS bigint',
        'find_lane(text, text[]) RETURNS bigint',
        'settle_bay(bigint) RETURNS void',
        'settle_lane(bigint, text DEFAULT NULL, float8 DEFAULT NULL, bigint DEFAULT NULL,
                     bigint[] DEFAULT NULL) RETURNS void',
        'promote_some(text, integer, timestamptz, boolean, timestamptz DEFAULT NULL)
            RETURNS integer',
        'visit_lanes(text, integer, text, timestamptz, bigint[], integer[], timestamptz[],
                     OUT chosen bigint[], OUT started bigint[], OUT charged text[],
                     OUT cut_short boolean)']
    LOOP
        EXECUTE 'CREATE FUNCTION ' || v_function || $body$
            LANGUAGE plpgsql AS $$
            BEGIN
                RAISE EXCEPTION 'the schema was migrated'
                    USING ERRCODE = 'serialization_failure';
            END $$ $body$;
    END LOOP;
END $do$;
