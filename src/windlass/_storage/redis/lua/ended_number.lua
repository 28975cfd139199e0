-- How many jobs are in a state, members of flows apart.
-- reads only
-- ARGV: state digit
local number = 0
local counts = redis.call('HGETALL', prefix .. 'counts')
for at = 1, #counts, 2 do
  if string.sub(counts[at], 1, 1) == ARGV[1] then
    number = number + counts[at + 1]
  end
end
for _, queue in ipairs(redis.call('ZRANGE', prefix .. 'oldest:m' .. ARGV[1], 0, -1)) do
  number = number - redis.call('ZCARD', prefix .. 'finished:m' .. ARGV[1] .. ':' .. queue)
end
return number
