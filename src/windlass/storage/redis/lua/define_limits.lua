-- LimitStore.define.
-- ARGV: names, each followed by msgpack [spec as JSON, spacing, burst, concurrency].
-- A limit with other numbers opens the bays that wait for it: as many as keys have lanes waiting.
-- use: lanes

local changed = false
for i = 1, #ARGV, 2 do
  -- Every app defines its limits when it starts; most often nothing has changed.
  if redis.call('HGET', prefix .. 'limits', ARGV[i]) ~= ARGV[i + 1] then
    redis.call('HSET', prefix .. 'limits', ARGV[i], ARGV[i + 1])
    open_limit(ARGV[i])
    changed = true
  end
end
if changed then
  wake()
end
return redis.status_reply('OK')
