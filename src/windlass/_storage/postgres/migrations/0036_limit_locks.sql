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
 WHERE j.ready = 2;
