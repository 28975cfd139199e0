-- Failed jobs of some queues, those that failed last first.
-- reads only
-- ARGV: since ('-inf': any), how many of each queue, then queue and how many of it to skip, ...
-- Returns for each queue id and instant, ...
local answer = {}
for i = 3, #ARGV, 2 do
  answer[#answer + 1] = redis.call(
    'ZREVRANGEBYSCORE', prefix .. 'finished:3:' .. ARGV[i], '+inf', ARGV[1], 'WITHSCORES', 'LIMIT',
    ARGV[i + 1], ARGV[2]
  )
end
return answer
