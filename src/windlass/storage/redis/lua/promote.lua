-- MaintenanceStore.promote.
-- ARGV: how many at most. Answer: how many became ready, longest due queue first.
-- use: lines

local left, most = tonumber(ARGV[1]), tonumber(ARGV[1])
while left > 0 do
  local queue = redis.call('ZRANGEBYSCORE', prefix .. 'due', '-inf', now, 'LIMIT', 0, 1)[1]
  if not queue then
    break
  end
  left = left - promote(queue, left)
  settle_due()
end
settle()
if left < most then
  wake()
end
return most - left
