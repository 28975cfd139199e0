-- LimitStore.states.
-- ARGV: name. Answer: of every gate that is or was in use its key, running claims, until when it is
-- spent (or ''), and the lanes that wait for it.
-- reads only
-- use: lanes

local answer = {}
local gates = redis.call('HGETALL', prefix .. 'gates:' .. ARGV[1])
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
