-- Workers' rows, and what they hold.
-- use: jobs
--
-- worker:<id>  HASH  start (packed by the caller), lease, state, started, beat, ended, memory,
--                    duty (none: work)
-- live         ZSET  worker by the instant from which it is overdue, of those whose row is live
-- ended        ZSET  worker by the instant its row ended
-- born         ZSET  worker by the order of its registration
-- born_seq     STRING the last number of that order

local function is_live(worker)
  return redis.call('ZSCORE', prefix .. 'live', worker) ~= false
end

-- End a live row; false: it was not live, and stays as it is.
local function end_worker(worker, state)
  if redis.call('ZREM', prefix .. 'live', worker) == 0 then
    return false
  end
  redis.call('HSET', prefix .. 'worker:' .. worker, 'state', state, 'ended', now)
  redis.call('ZADD', prefix .. 'ended', now, worker)
  if redis.call('EXISTS', prefix .. 'running:' .. worker) == 0 then
    redis.call('SREM', prefix .. 'holders', worker)
  end
  return true
end

-- What a worker holds: {id, number, seq, cancel, started} for each of its claims. The state record
-- alone says it: what was asked for may be large.
local function claims_of(worker)
  local ids = redis.call('SMEMBERS', prefix .. 'running:' .. worker)
  local kept = read_all('HMGET', prefix .. 'state', ids)
  local claims = {}
  for i, id in ipairs(ids) do
    local state, flags, seq, number, started = glance(kept[i])
    if state == RUNNING then
      claims[#claims + 1] = { id, number, seq, has(flags, CANCEL) and 1 or 0, started }
    end
  end
  return claims
end
