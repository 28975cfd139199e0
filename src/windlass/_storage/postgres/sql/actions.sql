-- Orders for jobs, and who gave them.

-- name: order
SELECT windlass.order_jobs($1, $2, $3::uuid[], $4, $5, $6, $7, $8);

-- name: insert
SELECT place, holder, replaced FROM windlass.insert_ordered($1, $2, $3, $4, true, true);

-- name: audits
SELECT number, id, at, who, what, subject, detail, count FROM windlass.list_audits($1, $2, $3);

-- name: record
SELECT windlass.record_audit($1, $2, $3, $4);
