-- LimitStore.reset.
-- ARGV: limit, key, note.
-- Answer: {}; or 'limit', the name, and the names that are defined.
-- use: lanes audits

if not spec_of(ARGV[1]) then
  return { 'limit', ARGV[1], unpack(redis.call('HKEYS', prefix .. 'limits')) }
end
if audits.known(ARGV[3]) then
  return {}
end
local gate, budgets = gate_of(ARGV), prefix .. 'gates:' .. ARGV[1]
if redis.call('HEXISTS', budgets, ARGV[2]) == 1 then
  redis.call('HSET', budgets, ARGV[2], '')
end
redis.call('HDEL', prefix .. 'breakers', gate)
open_gate(gate)
audits.keep(ARGV[3], 1)
wake()
hints.flush()
return {}
