-- QueueStore.change, once it is known that the settings of a text are the expected ones.
-- ARGV: queue, that text, the new one ('' each for none), how many may run by that (0: any number),
-- note.
-- Answer: 1; 0 if another text is stored by now.
-- use: brakes hints audits

local queue, old, new = ARGV[1], ARGV[2], ARGV[3]
local stored = redis.call('HGET', prefix .. 'settings', queue) or ''
if stored == new and stored ~= old then
  return 1 -- asked once more, after the first answer was lost
elseif stored ~= old then
  return 0
end
if new == '' then
  redis.call('HDEL', prefix .. 'settings', queue)
else
  redis.call('HSET', prefix .. 'settings', queue, new)
end
local brake = brake_of(queue) or { till = 0, hits = 0 }
set_brake(queue, brake.till, brake.hits, tonumber(ARGV[4]))
audits.keep(ARGV[5], 1)
wake({ [queue] = true })
hints.open(queue)
hints.flush()
return 1
