-- Delete gauges of minutes before an instant; one is those of one source.
-- ARGV: age, limit
-- Returns how many.
local limit = tonumber(ARGV[2])
local pruned = 0
for _, minute in ipairs(redis.call(
  'ZRANGEBYSCORE', prefix .. 'gauges', '-inf', string.format('(%.0f', now - ARGV[1]), 'LIMIT', 0,
  limit
)) do
  local key = prefix .. 'gauges:' .. minute
  for _, source in ipairs(redis.call('HKEYS', key)) do
    if pruned < limit then
      redis.call('HDEL', key, source)
      pruned = pruned + 1
    end
  end
  if redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', prefix .. 'gauges', minute)
  end
end
return pruned
