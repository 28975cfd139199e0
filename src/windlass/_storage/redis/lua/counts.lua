-- How many jobs of each queue are where.
-- use: lanes
-- reads only
-- Returns the counts (state digit and queue, number, ...), the paused queues, those with settings; then
-- of each queue with waiting jobs its name, how many are due later or blocked, how many retry, and since when the
-- one that has been ready for longest waits ('': none is).
local PRIORITIES = 100 -- of one line that are asked for their oldest job

local oldest
local lanes_left = 2000 -- that are looked into, of all queues

local function older(due)
  if not oldest or due < oldest then
    oldest = due
  end
end

-- Lines are in order of priority, then of due time: the first of each priority may be the one.
local function look_into(line)
  local after_it = '-inf'
  for _ = 1, PRIORITIES do
    local head = redis.call(
      'ZRANGEBYSCORE', prefix .. line, after_it, '+inf', 'WITHSCORES', 'LIMIT', 0, 1
    )
    if not head[1] then
      return
    end
    older((place_order(head[1])))
    after_it = '(' .. head[2]
  end
end

-- In a lane the head is the oldest unless jobs of several priorities wait there: where lanes are many,
-- the heads have to do.
local function look_into_lanes(queue)
  local names = redis.call('SMEMBERS', prefix .. 'bays:' .. queue)
  bays.load(names)
  for _, name in ipairs(names) do
    local bay = bays.get(name)
    if bay.lone then
      older((place_order(bay.place)))
    else
      look_into('bay:' .. name)
    end
    for _, lane in ipairs(bays.lanes(name, lanes_left)) do
      look_into('lane:' .. lane)
      lanes_left = lanes_left - 1
    end
  end
end

local function oldest_due(queue)
  oldest = nil
  local later = redis.call('ZRANGE', prefix .. 'later:' .. queue, 0, 0, 'WITHSCORES')
  if later[2] and tonumber(later[2]) <= now then
    older(tonumber(later[2]))
  end
  look_into('ready:' .. queue)
  look_into('solo:' .. queue)
  look_into_lanes(queue)
  return oldest or ''
end

local counts = redis.call('HGETALL', prefix .. 'counts')
local waiting = {}
for at = 1, #counts, 2 do
  if string.sub(counts[at], 1, 1) == '0' then
    local queue, n = string.sub(counts[at], 2), #waiting
    waiting[n + 1] = queue
    waiting[n + 2] = redis.call(
      'ZCOUNT', prefix .. 'later:' .. queue, string.format('(%.0f', now), '+inf'
    ) + (redis.call('HGET', prefix .. 'blocked', queue) or 0)
    waiting[n + 3] = redis.call('ZCARD', prefix .. 'retrying:' .. queue)
    waiting[n + 4] = oldest_due(queue)
  end
end
return {
  counts, redis.call('SMEMBERS', prefix .. 'paused'), redis.call('HKEYS', prefix .. 'settings'),
  waiting,
}
