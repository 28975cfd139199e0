-- Delete rollups of minutes before an instant; one is what is counted of a queue and a task.
-- ARGV: age, limit
-- Returns how many.
-- runs when memory is full
local before, limit = string.format('(%.0f', now - ARGV[1]), tonumber(ARGV[2])
local pruned = 0

-- True: nothing is left of them.
local function prune(key)
  local gone = {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local _, _, rest = struct.unpack('>Hc0Hc0', field)
    local whose = string.sub(field, 1, rest - 1)
    if not gone[whose] and pruned < limit then
      gone[whose] = true
      pruned = pruned + 1
    end
    if gone[whose] then
      redis.call('HDEL', key, field)
    end
  end
  return redis.call('EXISTS', key) == 0
end

for _, minute in ipairs(
  redis.call('ZRANGEBYSCORE', prefix .. 'rollups', '-inf', before, 'LIMIT', 0, limit)
) do
  local empty = prune(prefix .. 'rollups:' .. minute)
  if prune(prefix .. 'copied:' .. minute) and empty then
    redis.call('ZREM', prefix .. 'rollups', minute)
  end
  if pruned >= limit then
    break
  end
end
return pruned
