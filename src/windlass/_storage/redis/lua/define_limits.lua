-- LimitStore.define.
-- ARGV: note, then names, each followed by the spec as gates.lua takes it, packed by msgpack.
-- A limit with other numbers opens the bays that wait for it: as many as keys have lanes waiting. One
-- with another rate goes through the budgets of all its keys: what is owed are tokens, not time.
-- use: lanes audits

local function same_rate(one, other)
  one, other = cjson.decode(one[1]).rate, cjson.decode(other[1]).rate
  return one.n == other.n and one.per == other.per and one.burst == other.burst
end

-- What was taken at the old rate is owed at the new one.
local function rescale(name, old, new)
  local key = prefix .. 'gates:' .. name
  local budgets, owed = redis.call('HGETALL', key), {}
  for i = 1, #budgets, 2 do
    local till = tonumber(budgets[i + 1])
    if till and till > now then
      owed[#owed + 1] = budgets[i]
      owed[#owed + 1] = string.format('%.0f', now + span(new, (till - now) / old[2]))
    end
  end
  wide('HSET', key, owed, 2)
end

local note, changed = table.remove(ARGV, 1), false
for i = 1, #ARGV, 2 do
  -- Every app defines its limits when it starts; most often nothing has changed.
  local stored = redis.call('HGET', prefix .. 'limits', ARGV[i])
  if stored ~= ARGV[i + 1] then
    local old, new = stored and cmsgpack.unpack(stored), cmsgpack.unpack(ARGV[i + 1])
    if old and old[2] and new[2] and not same_rate(old, new) then
      rescale(ARGV[i], old, new)
    end
    if new[5] then
      redis.call('HSET', prefix .. 'breakers', '', '')
    end
    redis.call('HSET', prefix .. 'limits', ARGV[i], ARGV[i + 1])
    open_limit(ARGV[i])
    changed = true
  end
end
audits.keep(note, #ARGV / 2)
if changed then
  wake()
  hints.flush()
end
return redis.status_reply('OK')
