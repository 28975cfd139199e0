-- What holds a whole queue back: a cool-down, and how many of its jobs may run at once.
-- use: jobs gates

local GRACE, MOST_HITS = 120000000, 30 -- as in _core/limits/cooldown.py

-- End of a queue's cool-down (0: none), its cool-downs in a row, how many may run (0: any
-- number); false for most queues, which have none of it.
local function brake_of(queue)
  local brake = cache.brakes[queue]
  if brake == nil then
    brake = redis.call('HGET', prefix .. 'brakes', queue)
    if brake then
      local till, hits, most = struct.unpack('>dI4I4', brake)
      brake = { till = till, hits = hits, most = most }
    end
    cache.brakes[queue] = brake
  end
  return brake
end

local function set_brake(queue, till, hits, most)
  if till == 0 and hits == 0 and most == 0 then
    redis.call('HDEL', prefix .. 'brakes', queue)
    cache.brakes[queue] = false
  else
    redis.call('HSET', prefix .. 'brakes', queue, struct.pack('>dI4I4', till, hits, most))
    cache.brakes[queue] = { till = till, hits = hits, most = most }
  end
end

-- Whether a queue has no waiting job and nothing that holds it back: the whole answer about most queues
-- of an idle worker, by two commands.
local function is_idle(queue)
  return not brake_of(queue) and redis.call(
    'EXISTS', prefix .. 'ready:' .. queue, prefix .. 'later:' .. queue, prefix .. 'bays:' .. queue,
    prefix .. 'solo:' .. queue
  ) == 0
end

local function cooling_until(queue)
  local brake = brake_of(queue)
  return brake and brake.till > now and brake.till
end

-- How many more jobs of a queue may start, apart from their limits; nil: any number.
local function queue_room(queue)
  local brake = brake_of(queue)
  if not brake then
    return nil
  elseif brake.till > now then
    return 0
  elseif brake.most == 0 then
    return nil
  end
  local running = tonumber(redis.call('HGET', prefix .. 'counts', RUNNING .. queue) or 0)
  return math.max(0, brake.most - running - (pending.counted[RUNNING .. queue] or 0))
end

-- Start a cool-down, by the list of durations. Returns its end, and 1 if the queue was not cooling
-- already: many hits of one limit count once. By a clock that was set back a cool-down begins where all
-- others stand: `mend_gates` moves it with them.
local function cool(queue, cools, delay)
  local brake = brake_of(queue) or { till = 0, hits = 0, most = 0 }
  local back = set_back_by() or 0
  if brake.till > now + back then
    return brake.till - back, 0
  end
  local till = after(now + back, math.max(cools[math.min(brake.hits + 1, #cools)], delay))
  set_brake(queue, till, math.min(brake.hits + 1, MOST_HITS), brake.most)
  reckon()
  return till - back, 1
end

-- A success resets a cool-down that ended long enough ago.
local function forgive(queue)
  local brake = brake_of(queue)
  if brake and brake.till ~= 0 and brake.till <= now - GRACE then
    set_brake(queue, 0, 0, brake.most)
  end
end
