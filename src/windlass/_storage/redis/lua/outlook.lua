-- JobStore.outlook.
-- ARGV: queues. Answer: now; 1 if a claim on one of them is worth it; else when it may be, or nothing.
-- reads only
-- use: lines brakes mending

local SOLO_LOOKS, EXPIRIES = 64, 500 -- as a claim has them

-- Whether the first job of a lane has expired, also of one that waits: behind it may stand one that
-- needs less.
local function has_late_head(queue)
  local late = redis.call(
    'ZRANGEBYSCORE', prefix .. 'lane_expiring:' .. queue, '-inf', now, 'LIMIT', 0, EXPIRIES
  )
  for _, member in ipairs(late) do
    local line = prefix .. 'lane:' .. string.sub(member, PLACE + 1)
    if redis.call('ZRANGE', line, 0, 0)[1] == string.sub(member, 1, PLACE) then
      return true
    end
  end
  return false
end

local function solo_claimable(queue)
  local line = prefix .. 'solo:' .. queue
  for _, place in ipairs(redis.call('ZRANGE', line, 0, SOLO_LOOKS - 1)) do
    local job = load_job(string.sub(place, 18, 33))
    local special = job and special_of(job)
    if not special or (job.expires > 0 and job.expires <= now) or not shut(special) then
      return true
    end
  end
  return redis.call('ZCARD', line) > SOLO_LOOKS -- further than a claim looks: perhaps
end

local function claimable(queue)
  if redis.call('SISMEMBER', prefix .. 'paused', queue) == 1 then
    return false
  elseif queue_room(queue) == 0 then
    return cooling_until(queue) and set_back_by()
  end
  local due = first_due(queue)
  return redis.call('EXISTS', prefix .. 'ready:' .. queue, prefix .. 'open:' .. queue) > 0
    or (due and due <= now)
    or redis.call('ZCOUNT', prefix .. 'timed:' .. queue, '-inf', now) > 0
    or (redis.call('EXISTS', prefix .. 'timed:' .. queue) > 0 and set_back_by())
    or has_late_head(queue)
    or solo_claimable(queue)
end

local best -- the first instant at which a claim may be worth it

local function expect(at)
  if at and (not best or at < best) then
    best = at
  end
end

-- The first instant of a sorted set that lies ahead.
local function ahead(key)
  local after_now = string.format('(%.0f', now)
  local first =
    redis.call('ZRANGEBYSCORE', prefix .. key, after_now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return first[2] and tonumber(first[2])
end

-- --- run ---

if newer then
  return { now, 1, false } -- for the claim to refuse
end
local busy = {}
for _, queue in ipairs(ARGV) do
  if not is_idle(queue) then
    if claimable(queue) then
      return { now, 1, false }
    end
    busy[#busy + 1] = queue
  end
end
best = nil
-- A claim also settles parts of flows.
local settles = redis.call('ZRANGE', prefix .. 'settle', 0, 0, 'WITHSCORES')
if settles[2] and tonumber(settles[2]) <= now then
  return { now, 1, false }
end
expect(settles[2] and tonumber(settles[2]))
for _, queue in ipairs(busy) do
  if redis.call('SISMEMBER', prefix .. 'paused', queue) == 0 then
    local cool_until = cooling_until(queue)
    if cool_until then
      expect(cool_until)
    else
      expect(ahead('later:' .. queue))
      expect(ahead('timed:' .. queue))
    end
  end
end
return { now, 0, best or false }
