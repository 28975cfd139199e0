-- ScheduleStore.declare.
-- ARGV: name, ...
-- runs when memory is full

local at = string.format('%.0f', now)
for _, name in ipairs(ARGV) do
  if redis.call('HEXISTS', prefix .. 'schedules', name) == 1 then
    redis.call('HSET', prefix .. 'declared', name, at)
  end
end
return #ARGV
