-- Rollups of some minutes.
-- reads only
-- ARGV: since, until (not included), most minutes
-- Returns minute, its fields with their numbers, and the same of what was counted elsewhere, ...
local since, till, most = ARGV[1], '(' .. ARGV[2], ARGV[3]
local found = {}
for _, minute in ipairs(
  redis.call('ZRANGEBYSCORE', prefix .. 'rollups', since, till, 'LIMIT', 0, most)
) do
  found[#found + 1] = minute
  found[#found + 1] = redis.call('HGETALL', prefix .. 'rollups:' .. minute)
  found[#found + 1] = redis.call('HGETALL', prefix .. 'copied:' .. minute)
end
return found
