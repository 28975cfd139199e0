-- Delete events before an instant.
-- ARGV: age, limit
-- Returns how many.
-- runs when memory is full
local old = redis.call(
  'ZRANGEBYSCORE', prefix .. 'events', '-inf', string.format('(%.0f', now - ARGV[1]), 'LIMIT', 0,
  ARGV[2]
)
for _, member in ipairs(old) do
  local id = string.sub(member, 9)
  redis.call('ZREM', prefix .. 'events', member)
  redis.call('HDEL', prefix .. 'events:' .. id, string.sub(member, 1, 8))
  if redis.call('EXISTS', prefix .. 'events:' .. id, prefix .. 'logs:' .. id) == 0 then
    redis.call('SREM', prefix .. 'journal', id)
  end
end
return #old
