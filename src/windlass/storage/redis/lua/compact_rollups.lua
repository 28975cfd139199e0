-- Merge the minutes of each whole hour that ended before an instant into its first minute.
-- ARGV: age, limit
-- Returns how many rows that saved; a row is what is counted of a queue and a task in a minute.
local HOUR = 3600000000
local before, left, saved = now - ARGV[1], tonumber(ARGV[2]), 0

-- Queue and task of a field.
local function whose(field)
  local _, _, rest = struct.unpack('>Hc0Hc0', field)
  return string.sub(field, 1, rest - 1)
end

local function rows_of(key)
  local rows = {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
    rows[whose(field)] = true
  end
  return rows
end

local function merge(minute, hour)
  local from, into = prefix .. minute, prefix .. hour
  local there, moved = rows_of(into), {}
  local fields = redis.call('HGETALL', from)
  for at = 1, #fields, 2 do
    local row = whose(fields[at])
    if not moved[row] then
      moved[row] = true
      left = left - 1
      saved = saved + (there[row] and 1 or 0)
    end
    redis.call('HINCRBY', into, fields[at], fields[at + 1])
  end
  redis.call('DEL', from)
end

for _, minute in ipairs(redis.call(
  'ZRANGEBYSCORE', prefix .. 'rollups', '-inf', string.format('(%.0f', before)
)) do
  local hour = tonumber(minute) - tonumber(minute) % HOUR
  if left <= 0 or hour + HOUR >= before then
    break
  end
  if hour ~= tonumber(minute) then
    local first = string.format('%.0f', hour)
    merge('rollups:' .. minute, 'rollups:' .. first)
    merge('copied:' .. minute, 'copied:' .. first)
    redis.call('ZREM', prefix .. 'rollups', minute)
    redis.call('ZADD', prefix .. 'rollups', first, first)
  end
end
return saved
