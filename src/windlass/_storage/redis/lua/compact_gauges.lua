-- Merge the minutes of each whole hour that ended before an instant into its first minute.
-- ARGV: age, limit
-- Returns how many rows were moved, and how many that saved; a row is the gauges of one source in a
-- minute.
local HOUR = 3600000000
local limit = tonumber(ARGV[2])
local before = now - ARGV[1]
before = before - before % HOUR
local moved, saved = 0, 0

-- Samples, total and peak of each gauge, added up.
local function add(stored, more)
  local sums = cmsgpack.unpack(stored)
  for name, gauge in pairs(cmsgpack.unpack(more)) do
    local old = sums[name]
    if old then
      gauge = { old[1] + gauge[1], old[2] + gauge[2], math.max(old[3], gauge[3]) }
    end
    sums[name] = gauge
  end
  return cmsgpack.pack(sums)
end

for _, minute in ipairs(redis.call(
  'ZRANGEBYSCORE', prefix .. 'gauges', '-inf', string.format('(%.0f', before)
)) do
  local hour = string.format('%.0f', tonumber(minute) - tonumber(minute) % HOUR)
  if hour ~= minute and moved < limit then
    local from, into = prefix .. 'gauges:' .. minute, prefix .. 'gauges:' .. hour
    local fields = redis.call('HGETALL', from)
    redis.call('ZADD', prefix .. 'gauges', hour, hour)
    for at = 1, #fields, 2 do
      if moved < limit then
        local source, gauges = fields[at], fields[at + 1]
        local stored = redis.call('HGET', into, source)
        redis.call('HSET', into, source, stored and add(stored, gauges) or gauges)
        redis.call('HDEL', from, source)
        moved = moved + 1
        saved = saved + (stored and 1 or 0)
      end
    end
    if redis.call('EXISTS', from) == 0 then
      redis.call('ZREM', prefix .. 'gauges', minute)
    end
  end
end
return { moved, saved }
