-- How many jobs are in a state.
-- reads only
-- ARGV: state digit
local number = 0
local counts = redis.call('HGETALL', prefix .. 'counts')
for at = 1, #counts, 2 do
  if string.sub(counts[at], 1, 1) == ARGV[1] then
    number = number + counts[at + 1]
  end
end
return number
