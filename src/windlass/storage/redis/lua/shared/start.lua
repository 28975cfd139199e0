-- In front of every script: whether this is still the storage that was opened, and what time it is.
-- KEYS[1]: what every key starts with, hash tag included. All keys are built from it.
-- ARGV[1], ARGV[2]: the epoch, and the test instant or ''; both are taken away here.
local prefix = KEYS[1]
if redis.call('GET', prefix .. 'epoch') ~= table.remove(ARGV, 1) then
  return redis.error_reply('WINDLASSEPOCH the stored epoch is missing or another one')
end
local now = table.remove(ARGV, 1)
if now == '' then
  now = redis.call('TIME')
  now = now[1] * 1000000 + now[2]
else
  now = tonumber(now)
end
