-- MaintenanceStore.promote.
-- ARGV: how many at most. Answer: how many became ready, longest due queue first.
-- use: lines

local QUEUES = 1000 -- that are looked into
local left, most = tonumber(ARGV[1]), tonumber(ARGV[1])
local queues = redis.call('ZRANGEBYSCORE', prefix .. 'due', '-inf', now, 'LIMIT', 0, QUEUES)
for _, queue in ipairs(queues) do
  if left == 0 then
    break
  end
  local many = promote(queue, left, -math.huge)
  left = left - many
end
settle()
if left < most then
  wake()
end
return most - left
