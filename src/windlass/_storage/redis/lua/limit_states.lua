-- LimitStore.states.
-- ARGV: name, cursor (of HSCAN: '0' to begin). Answer: the next cursor ('0' at the end); then of some
-- gates that are or were in use the key, running claims, until when it is spent (or ''), the lanes
-- that wait for it, and of a breaker its failures, how often it opened and until when it is open (0:
-- it never was), else ''. A gate may be told of twice.
-- reads only
-- use: lanes

local name, spec = ARGV[1], spec_of(ARGV[1])
local page = redis.call('HSCAN', prefix .. 'gates:' .. name, ARGV[2], 'COUNT', 200)
local answer = { page[1] }

local function tell(key, spent)
  local gate = gate_of({ name, key })
  local parked_lanes = 0
  for _, bay in ipairs(redis.call('ZRANGE', prefix .. 'waits:' .. gate, 0, -1)) do
    parked_lanes = parked_lanes + math.max(1, redis.call('ZCARD', prefix .. 'bay:' .. bay)) -- 1: it is lone
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = key, used(gate), spent, parked_lanes
  answer[n + 5] = spec and spec[5] and breaker_of(gate) or ''
end

-- The gate of a breaker, which has no keys, may be forgotten while its failures are not.
if ARGV[2] == '0' and redis.call('HEXISTS', prefix .. 'breakers', name) == 1 then
  tell('', '')
end
for i = 1, #page[2], 2 do
  tell(page[2][i], page[2][i + 1])
end
return answer
