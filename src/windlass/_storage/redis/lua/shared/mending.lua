-- What a clock that was set back would keep waiting.
-- use: lanes brakes

-- After the clock was set back every gate, and every queue that cools down, is as it was when something was
-- taken last.
local function mend_gates()
  local back = set_back_by()
  if not back then
    return
  end
  for _, name in ipairs(redis.call('HKEYS', prefix .. 'limits')) do
    local key, moved = prefix .. 'gates:' .. name, {}
    local budgets = redis.call('HGETALL', key)
    for i = 1, #budgets, 2 do
      local till = tonumber(budgets[i + 1])
      if till then
        moved[#moved + 1] = budgets[i]
        moved[#moved + 1] = string.format('%.0f', till - back)
      end
    end
    wide('HSET', key, moved, 2)
    open_limit(name)
  end
  local broken = redis.call('HGETALL', prefix .. 'breakers')
  for i = 1, #broken, 2 do
    if broken[i] ~= '' then
      local failures, opened, till = struct.unpack('>I4I4d', broken[i + 1])
      local kept = struct.pack('>I4I4d', failures, opened, till > 0 and till - back or 0)
      redis.call('HSET', prefix .. 'breakers', broken[i], kept)
    end
  end
  local rests = redis.call('HGETALL', prefix .. 'brakes')
  for i = 1, #rests, 2 do
    local brake = brake_of(rests[i])
    if brake.till > 0 then
      set_brake(rests[i], brake.till - back, brake.hits, brake.most)
    end
  end
  cache.spent, cache.breakers = nil, nil
  redis.call('SET', prefix .. 'charged', string.format('%.0f', now))
end
