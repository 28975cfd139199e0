-- Merge the minutes of each whole hour that ended before an instant into its first minute.
-- ARGV: age, limit
-- Returns how many rows were moved, and how many that saved; a row is what is counted of a queue and a
-- task in a minute.
local HOUR = 3600000000
local before, limit = now - ARGV[1], tonumber(ARGV[2])
local moved, saved = 0, 0

-- Queue and task of a field.
local function whose(field)
  local _, _, rest = struct.unpack('>Hc0Hc0', field)
  return string.sub(field, 1, rest - 1)
end

-- Rows of a minute join those of an hour, as many as may be; true: all have.
local function merge(minute, hour)
  local from, into = prefix .. minute, prefix .. hour
  local there, rows, fields = {}, {}, redis.call('HGETALL', from)
  if #fields == 0 then
    return true
  end
  for _, field in ipairs(redis.call('HKEYS', into)) do
    there[whose(field)] = true
  end
  for at = 1, #fields, 2 do
    local row = whose(fields[at])
    if not rows[row] and moved < limit then
      rows[row] = true
      moved = moved + 1
      saved = saved + (there[row] and 1 or 0)
    end
    if rows[row] then
      redis.call('HINCRBY', into, fields[at], fields[at + 1])
      redis.call('HDEL', from, fields[at])
    end
  end
  return redis.call('EXISTS', from) == 0
end

for _, minute in ipairs(redis.call(
  'ZRANGEBYSCORE', prefix .. 'rollups', '-inf', string.format('(%.0f', before)
)) do
  local hour = tonumber(minute) - tonumber(minute) % HOUR
  if moved >= limit or hour + HOUR >= before then
    break
  end
  if hour ~= tonumber(minute) then
    local first = string.format('%.0f', hour)
    redis.call('ZADD', prefix .. 'rollups', first, first)
    local empty = merge('rollups:' .. minute, 'rollups:' .. first)
    if merge('copied:' .. minute, 'copied:' .. first) and empty then
      redis.call('ZREM', prefix .. 'rollups', minute)
    end
  end
end
return { moved, saved }
