-- JobStore.claimable.
-- ARGV: queues. Answer: 1 if a claim on one of them is worth it.
-- reads only
-- use: lines brakes

local SOLO_LOOKS = 64

local function solo_claimable(queue)
  local line = prefix .. 'solo:' .. queue
  for _, place in ipairs(redis.call('ZRANGE', line, 0, SOLO_LOOKS - 1)) do
    local job = load_job(string.sub(place, 18, 33))
    local special = job and special_of(job)
    if not special or (job.expires > 0 and job.expires <= now) or not shut(special[4]) then
      return true
    end
  end
  return redis.call('ZCARD', line) > SOLO_LOOKS -- further than a claim looks: perhaps
end

local function claimable(queue)
  if redis.call('SISMEMBER', prefix .. 'paused', queue) == 1 or queue_room(queue) == 0 then
    return false
  end
  local due = first_due(queue)
  return redis.call('EXISTS', prefix .. 'ready:' .. queue, prefix .. 'open:' .. queue) > 0
    or (due and due <= now)
    or redis.call('ZCOUNT', prefix .. 'timed:' .. queue, '-inf', now) > 0
    or solo_claimable(queue)
end

for _, queue in ipairs(ARGV) do
  if claimable(queue) then
    return 1
  end
end
return 0
