-- Delete rows that ended before an instant and hold no claim.
-- ARGV: age, limit
-- Returns how many.
-- runs when memory is full
local before, limit = string.format('(%.0f', now - ARGV[1]), tonumber(ARGV[2])
local pruned, offset = 0, 0
while pruned < limit do
  local some = redis.call('ZRANGEBYSCORE', prefix .. 'ended', '-inf', before, 'LIMIT', offset, 100)
  for _, worker in ipairs(some) do
    if pruned < limit and redis.call('EXISTS', prefix .. 'running:' .. worker) == 0 then
      redis.call('DEL', prefix .. 'worker:' .. worker)
      redis.call('ZREM', prefix .. 'ended', worker)
      redis.call('ZREM', prefix .. 'born', worker)
      pruned = pruned + 1
    else
      offset = offset + 1
    end
  end
  if #some < 100 then
    break
  end
end
return pruned
