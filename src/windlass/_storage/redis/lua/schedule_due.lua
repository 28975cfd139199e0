-- ScheduleStore.due.
-- ARGV: how many at most
-- Answer: now; 1 where all are paused (and nothing else), or nil; when the next one that is not due
-- will be, or nil; name, record and when it was declared (or nil) of each that is due, the longest
-- first.
-- reads only

if redis.call('EXISTS', prefix .. 'schedules_paused') == 1 then
  return { now, 1, false }
end

local planned, at = prefix .. 'planned', string.format('%.0f', now)
local following = redis.call(
  'ZRANGEBYSCORE', planned, '(' .. at, '+inf', 'WITHSCORES', 'LIMIT', 0, 1
)
local answer = { now, false, following[2] or false }
for _, name in ipairs(redis.call('ZRANGEBYSCORE', planned, '-inf', at, 'LIMIT', 0, ARGV[1])) do
  answer[#answer + 1] = name
  answer[#answer + 1] = redis.call('HGET', prefix .. 'schedules', name)
  answer[#answer + 1] = redis.call('HGET', prefix .. 'declared', name)
end
return answer
