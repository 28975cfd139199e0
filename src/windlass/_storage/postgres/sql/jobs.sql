-- Jobs and limits. Each operation is one call of one function: see the migrations.

-- name: insert_plain
SELECT place, holder, replaced
  FROM windlass.insert_plain_jobs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, true, true);

-- name: insert_one
SELECT windlass.insert_plain_job($1, $2, $3, $4, $5, $6, $7, $8);

-- name: insert_alike
SELECT place, holder, replaced
  FROM windlass.insert_alike_jobs($1, $2, $3, $4, $5, $6, $7, $8);

-- name: insert_limited
SELECT place, holder, replaced
  FROM windlass.insert_limited_jobs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, true, true);

-- name: insert
SELECT place, holder, replaced
  FROM windlass.insert_jobs($1, $2, true, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                            $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, true, $26, true);

-- name: insert_keyed
-- A key may be under decision in an open transaction: so long, and then KeyBusy.
SELECT place, holder, replaced
  FROM windlass.insert_keyed_jobs('3s', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
                                  $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, true,
                                  true);

-- name: limit_names
SELECT name FROM windlass.limits ORDER BY name;

-- name: claim
SELECT seq, id, number, attempt, max_attempts, budget, due, timeout, queue, task, payload, extras,
       priority
  FROM windlass.claim_jobs($1, $2, $3, $4, $5, $6, $7, $8);

-- name: apply
SELECT at, left_out, verdicts, verbs, cool_untils, cooleds
  FROM windlass.apply_transitions($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                                  $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
                                  p_flows => $26);

-- name: succeed
-- The last column: whether the end of these jobs may make others ready, by a limit, their queue or their
-- flow.
SELECT at, verdicts, verbs,
       placed IS TRUE OR EXISTS (SELECT 1 FROM windlass.holds)
       OR EXISTS (SELECT 1 FROM windlass.queues WHERE max_running IS NOT NULL)
  FROM windlass.apply_successes($1, $2, $3::text::bigint[], $4, $5, $6);

-- name: end_and_claim
SELECT seq, id, number, attempt, max_attempts, budget, due, timeout, queue, task, payload, extras,
       priority
  FROM windlass.end_and_claim($1, $2, $3::text::bigint[], $4, $5, $6, $7, $8, $9, $10, $11, $12);

-- name: succeed_unkept
SELECT at, verdicts, verbs,
       placed IS TRUE OR EXISTS (SELECT 1 FROM windlass.holds)
       OR EXISTS (SELECT 1 FROM windlass.queues WHERE max_running IS NOT NULL)
  FROM windlass.delete_successes($1, $2, $3::text::bigint[], $4, $5, $6);

-- name: outlook
-- A newer major version is for the claim to refuse.
SELECT at,
       claimable
       OR EXISTS (SELECT 1 FROM windlass.schema_versions WHERE version >= ($3 / 100 + 1) * 100),
       next_us
  FROM windlass.outlook($1, $2);

-- name: version
SELECT max(version) FROM windlass.schema_versions;

-- name: active
SELECT windlass.is_active($1, $2);

-- name: report
SELECT windlass.report_progress($1, $2, $3, $4);

-- name: settled
SELECT id, state, result, error_kind, error_message, reason FROM windlass.settled_jobs($1);

-- name: cancel
SELECT windlass.cancel_jobs($1, $2, $3);

-- name: define
SELECT windlass.define_limits($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: set_gate
SELECT windlass.set_gate($1, $2, $3, $4, $5, $6);

-- name: specs
SELECT spec FROM windlass.limits ORDER BY name;

-- name: limit_states
SELECT gate, running, spent_until, parked, breaker, failures, opened, open_until
  FROM windlass.limit_states($1);

-- name: breakers
SELECT gate, running, failures, opened, open_until FROM windlass.breaker_states($1::text[]);
