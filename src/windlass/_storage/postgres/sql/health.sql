-- What keeps the tables quick, and what keeps them from being cleaned.

-- name: dead_rows
SELECT relname, n_dead_tup, n_live_tup FROM pg_stat_user_tables WHERE schemaname = $1;

-- name: holding_back
-- Sessions that hold a snapshot or a transaction number: no row that died since may be removed.
-- Anybody may see who and how many transactions ago; since when only of sessions of one's own role,
-- or with pg_read_all_stats. Our own chores and other vacuums hold nothing back for us.
SELECT 'connection ' || pid AS who, coalesce(usename, '') AS role,
       coalesce(application_name, '') AS application, coalesce(state, 'not shown') AS state,
       coalesce(backend_xmin, backend_xid)::text AS horizon,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
  FROM pg_stat_activity
 WHERE coalesce(backend_xmin, backend_xid) IS NOT NULL
   AND pid <> pg_backend_pid()
   AND datname IS NOT DISTINCT FROM current_database()
   AND coalesce(backend_type, 'client backend') = 'client backend'
UNION ALL
SELECT 'prepared transaction ' || gid, owner::text, '', 'prepared', transaction::text,
       extract(epoch FROM clock_timestamp() - prepared)::float8
  FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'replication slot ' || slot_name, '', '', CASE WHEN active THEN 'active' ELSE 'unused' END,
       xmin::text, NULL
  FROM pg_replication_slots WHERE xmin IS NOT NULL AND NOT active;

-- One per table; without truncation, which would lock everybody out for a moment.

-- name: vacuum_jobs
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.jobs;

-- name: vacuum_keys
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.keys;

-- name: vacuum_history
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.history;

-- name: vacuum_rollups
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.rollups;

-- name: vacuum_workers
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.workers;

-- name: vacuum_leaders
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.leaders;

-- name: vacuum_gates
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.gates;

-- name: vacuum_holds
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.holds;

-- name: vacuum_lanes
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.lanes;

-- name: vacuum_lane_digests
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.lane_digests;

-- name: vacuum_bays
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.bays;

-- name: vacuum_queues
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.queues;

-- name: vacuum_audits
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.audits;

-- name: vacuum_logs
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.logs;

-- name: vacuum_events
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) windlass.events;

-- name: facts
-- What the server says of itself and of us; what it does not tell this role is NULL.
SELECT current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('autovacuum') AS autovacuum,
       current_setting('max_connections')::float8 AS max_connections,
       (SELECT count(*) FROM pg_stat_activity
         WHERE coalesce(backend_type, 'client backend') = 'client backend')::float8 AS connections,
       (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND state = 'active')::float8 AS connections_active,
       (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND state = 'idle')::float8 AS connections_idle,
       (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend'
           AND application_name = 'windlass')::float8 AS connections_windlass,
       pg_database_size(current_database())::float8 AS database_size,
       (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
         WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND c.relkind = 'r')::float8 AS size,
       (SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = $1)::float8 AS dead_rows,
       (SELECT sum(n_live_tup) FROM pg_stat_user_tables WHERE schemaname = $1)::float8 AS live_rows;
