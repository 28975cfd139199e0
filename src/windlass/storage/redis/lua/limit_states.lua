-- LimitStore.states.
-- ARGV: name, cursor (of HSCAN: '0' to begin). Answer: where to go on ('0' at the end); then of some
-- gates that are or were in use the key, running claims, until when it is spent (or ''), and the
-- lanes that wait for it. A gate may be told of twice.
-- reads only
-- use: lanes

local page = redis.call('HSCAN', prefix .. 'gates:' .. ARGV[1], ARGV[2], 'COUNT', 200)
local answer, gates = { page[1] }, page[2]
for i = 1, #gates, 2 do
  local gate = gate_of({ ARGV[1], gates[i] })
  local parked_lanes = 0
  for _, bay in ipairs(redis.call('ZRANGE', prefix .. 'waits:' .. gate, 0, -1)) do
    parked_lanes = parked_lanes + redis.call('ZCARD', prefix .. 'bay:' .. bay)
  end
  local n = #answer
  answer[n + 1], answer[n + 2] = gates[i], used(gate)
  answer[n + 3], answer[n + 4] = gates[i + 1], parked_lanes
end
return answer
