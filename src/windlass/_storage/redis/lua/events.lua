-- The oldest or newest events of a span of time.
-- reads only
-- ARGV: oldest or newest, since, until, how many to skip, how many at most
-- Returns id and record of each.
local since, till = ARGV[2], '(' .. ARGV[3]
local members
if ARGV[1] == 'newest' then
  members = redis.call('ZREVRANGEBYSCORE', prefix .. 'events', till, since, 'LIMIT', ARGV[4], ARGV[5])
else
  members = redis.call('ZRANGEBYSCORE', prefix .. 'events', since, till, 'LIMIT', ARGV[4], ARGV[5])
end
local found = {}
for _, member in ipairs(members) do
  local id = string.sub(member, 9)
  found[#found + 1] = id
  found[#found + 1] = redis.call('HGET', prefix .. 'events:' .. id, string.sub(member, 1, 8)) or ''
end
return found
