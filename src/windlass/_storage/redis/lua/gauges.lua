-- Gauges of some minutes.
-- reads only
-- ARGV: since, until (not included), most minutes
-- Returns minute, and source and gauges of each, ...
local found = {}
for _, minute in ipairs(redis.call(
  'ZRANGEBYSCORE', prefix .. 'gauges', ARGV[1], '(' .. ARGV[2], 'LIMIT', 0, ARGV[3]
)) do
  found[#found + 1] = minute
  found[#found + 1] = redis.call('HGETALL', prefix .. 'gauges:' .. minute)
end
return found
