-- Failed jobs of some lines, those that failed last first.
-- reads only
-- ARGV: since ('-inf': any), how many of each line, then line and how many of it to skip, ... A line is 3:queue,
--   or m3:queue of members of flows.
-- Returns for each line id and instant, ...
local answer = {}
for i = 3, #ARGV, 2 do
  answer[#answer + 1] = redis.call(
    'ZREVRANGEBYSCORE', prefix .. 'finished:' .. ARGV[i], '+inf', ARGV[1], 'WITHSCORES', 'LIMIT',
    ARGV[i + 1], ARGV[2]
  )
end
return answer
