-- Delete audit records from before an instant.
-- use: audits
-- ARGV: age, limit
-- Returns how many.
-- runs when memory is full
local old = redis.call(
  'ZRANGEBYSCORE', prefix .. 'audit_ages', '-inf', string.format('(%.0f', now - ARGV[1]), 'LIMIT', 0,
  ARGV[2]
)
for _, id in ipairs(old) do
  audits.forget(id)
end
return #old
