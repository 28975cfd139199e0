-- The oldest events of a span of time.
-- reads only
-- ARGV: since, until, how many to skip, how many at most
-- Returns id and record of each.
local found = {}
for _, member in ipairs(redis.call(
  'ZRANGEBYSCORE', prefix .. 'events', ARGV[1], '(' .. ARGV[2], 'LIMIT', ARGV[3], ARGV[4]
)) do
  local id = string.sub(member, 9)
  found[#found + 1] = id
  found[#found + 1] = redis.call('HGET', prefix .. 'events:' .. id, string.sub(member, 1, 8)) or ''
end
return found
