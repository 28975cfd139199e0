-- In front of every script: whether this is still the storage that was opened, and what time it is.
-- KEYS[1]: what every key starts with, hash tag included. All keys are built from it.
-- ARGV[1], ARGV[2]: the epoch, and the test instant or ''; both are taken away here.
local prefix = KEYS[1]
local newer -- the stored layout, where it is a newer one than the caller knows: no claims then
do
  local epoch, known = redis.call('GET', prefix .. 'epoch'), table.remove(ARGV, 1)
  if epoch ~= known then
    local layout, jobs = string.match(epoch or '', '^(%d+)(%-.+)$')
    local its_layout, its_jobs = string.match(known, '^(%d+)(%-.+)$')
    if not jobs or jobs ~= its_jobs or tonumber(layout) < tonumber(its_layout) then
      return redis.error_reply('WINDLASSEPOCH the stored epoch is missing or another one')
    end
    -- The same jobs. What the caller may still do with them, the newer layout has said.
    newer = layout
    if tonumber(its_layout) < tonumber(redis.call('GET', prefix .. 'finishes') or layout) then
      return redis.error_reply('WINDLASSLAYOUT ' .. newer .. ' is the stored layout')
    end
  end
end
local now = table.remove(ARGV, 1)
if now == '' then
  now = redis.call('TIME')
  now = now[1] * 1000000 + now[2]
else
  now = tonumber(now)
end
