-- Flows. Each operation is one call of one function: functions/66_settle.sql, 67_flows.sql,
-- 68_added_flows.sql.

-- name: start
SELECT id, created, repeated
  FROM windlass.start_flows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
                            $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30,
                            $31);

-- name: give_key_up
SELECT windlass.give_flow_key_up($1, $2, $3, $4);

-- name: extend
SELECT windlass.extend_flow($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
                            $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30,
                            $31);

-- name: add
SELECT windlass.add_to_flow($1, $2, $3, $4);

-- name: settle
SELECT windlass.settle_flows($1, $2, $3);

-- name: act
SELECT windlass.act_on_flows($1, $2, $3, $4, $5);

-- name: members
SELECT seq, id, state, blocked, result, error_kind, error_message, reason
  FROM windlass.list_members($1, $2, $3, $4);

-- name: find
SELECT number, id, name, state, created_at, ended_at, key, cancelled, sealed, expires_at, expires,
       tenant, counts
  FROM windlass.read_flows(windlass.find_flows($1::smallint[], $2, $3, $4, $5, $6));

-- name: one
SELECT number, id, name, state, created_at, ended_at, key, cancelled, sealed, expires_at, expires,
       tenant, counts
  FROM windlass.read_flows(
           ARRAY(SELECT number FROM windlass.flows WHERE id = $1::uuid AND NOT gone));

-- name: states
SELECT id, state FROM windlass.flows WHERE id = ANY ($1::uuid[]) AND NOT gone;

-- name: parts
SELECT p.flow, p.number, p.name, p.kind, p.task, p.failed AS on_failed, p.after, p.strict, c.total,
       c.blocked, c.open, c.succeeded, c.failed, c.cancelled, c.stopped, c.skipped, p.added_id,
       p.added_first, p.counts_for
  FROM windlass.parts p JOIN windlass.part_counts c ON c.part = p.id
 WHERE p.flow = ANY ($1::bigint[]) ORDER BY p.flow, p.number;

-- name: prune
SELECT windlass.prune_flows($1, $2::smallint, $3, $4);

-- name: recount
SELECT wrong, next FROM windlass.recount($1, $2, $3, $4);

-- name: counts
SELECT running, succeeded, failed, cancelled, blocked, oldest FROM windlass.count_flows($1);
