-- The budgets jobs count against, as one operation sees them. A gate is a limit and a key. The
-- arithmetic is that of _core/limits/limit.py, to the microsecond: whole numbers below 2^53 are exact.
-- use: jobs

local UNIT = -1 -- in the place of a cost: what is missing is a unit of concurrency, not tokens
local LONGEST = 36525 * 86400 * 1000000

-- {JSON, spacing|nil, burst|nil, concurrency|nil}, of a breaker besides its failures and how long it
-- opens, each time in a row; or false for an unknown limit.
local function spec_of(name)
  local spec = cache.specs[name]
  if spec == nil then
    spec = redis.call('HGET', prefix .. 'limits', name)
    spec = spec and cmsgpack.unpack(spec)
    cache.specs[name] = spec
  end
  return spec
end

local function used(gate)
  local known = cache.usage[gate]
  if not known then
    local taken = pending.taken[gate]
    known = redis.call('SCARD', prefix .. 'holds:' .. gate)
      + (not taken and 0 or type(taken) == 'table' and #taken or 1)
    cache.usage[gate] = known
  end
  return known
end

-- Until when a gate is spent; 0: it is not.
local function spent_until(name, key, gate)
  if not cache.spent[gate] then
    cache.spent[gate] = tonumber(redis.call('HGET', prefix .. 'gates:' .. name, key) or '') or 0
  end
  return cache.spent[gate]
end

-- How long a number of tokens takes to refill.
local function span(spec, tokens)
  return math.ceil(math.min(spec[2] * tokens, LONGEST))
end

-- When the bucket of a gate holds this use's cost; nil: it does now.
local function opens_at(spec, use, gate)
  if not spec[2] then
    return nil
  end
  local cost, spent = use[3], spent_until(use[1], use[2], gate)
  if spec.cost ~= cost then -- the call asks for many gates of a limit, at one cost most often
    spec.cost, spec.free = cost, span(spec, spec[3]) - span(spec, math.min(cost, spec[3]))
  end
  if spent - now > spec.free then
    return spent - spec.free
  end
  return nil
end

-- Whether the clock was set back since something was taken: by how much. More than CLOCK_SLACK in
-- _core/limits/limit.py.
local function set_back_by()
  local at = tonumber(redis.call('GET', prefix .. 'charged') or '')
  return at and at - now > 1000000 and at - now
end

-- The instant from which a wait counts that begins now. By a clock that was set back it is the last one
-- that counted: `mend_gates` moves it with all others.
local function reckon()
  local at = math.max(tonumber(redis.call('GET', prefix .. 'charged') or '') or 0, now)
  redis.call('SET', prefix .. 'charged', string.format('%.0f', at))
  return at
end

-- --- breakers: _core/limits/breaker.py ---

-- Failures in a row, how often it has opened in a row, until when it is open (0: it never was).
local function breaker_of(gate)
  if not cache.breakers[gate] then
    local stored = redis.call('HGET', prefix .. 'breakers', gate)
    local failures, opened, till = struct.unpack('>I4I4d', stored or string.rep('\0', 16))
    cache.breakers[gate] = { failures, opened, till }
  end
  return cache.breakers[gate]
end

-- Until when a breaker that is not closed is open (from then on: one at a time); nil: it is closed.
local function open_until(spec, gate)
  local breaker = spec[5] and breaker_of(gate)
  return breaker and breaker[1] >= spec[5] and breaker[3] or nil
end

-- One more failure. Those that end while it is open count, and do not prolong it.
local function trip(spec, gate)
  local failures, opened, till = unpack(breaker_of(gate))
  local at = reckon()
  failures = failures + 1
  if failures >= spec[5] and till <= at then
    opened = opened + 1
    till = after(at, spec[6][math.min(opened, #spec[6])])
  end
  cache.breakers[gate] = { failures, opened, till }
  redis.call('HSET', prefix .. 'breakers', gate, struct.pack('>I4I4d', failures, opened, till))
end

local function close_breaker(gate)
  if breaker_of(gate)[1] > 0 then
    cache.breakers[gate] = { 0, 0, 0 }
    redis.call('HDEL', prefix .. 'breakers', gate)
  end
end

-- --- what jobs take ---

-- What keeps a job that asks for this from starting: gate, cost (or UNIT), and when it can; nil: nothing.
-- A missing unit comes first, because its return has no known time; then the tokens that take
-- longest.
local function shut(special)
  local gate, cost, at
  local uses, gates, specs, usage = special[4], special.gates, cache.specs, cache.usage
  for i = 1, #uses do
    local use, its_gate = uses[i], gates[i]
    local spec = specs[use[1]]
    if spec == nil then
      spec = spec_of(use[1])
    end
    if spec then
      if spec[4] and (usage[its_gate] or used(its_gate)) >= spec[4] then
        return its_gate, UNIT, nil
      end
      if spec[5] then
        local till = open_until(spec, its_gate)
        if till and till <= now and used(its_gate) > 0 then
          return its_gate, UNIT, nil
        elseif till and till > now and (not at or till > at) then
          gate, cost, at = its_gate, UNIT, till
        end
      end
      local its_at = spec[2] and opens_at(spec, use, its_gate)
      if its_at and (not at or its_at > at) then
        gate, cost, at = its_gate, use[3], its_at
      end
    end
  end
  return gate, cost, at
end

-- Take from every gate for a job that starts; none of them is shut. Written by `write_gates`.
local function charge(special, id)
  local uses, gates, all_taken, usage = special[4], special.gates, pending.taken, cache.usage
  local charged = pending.charged
  for i = 1, #uses do
    local use, gate = uses[i], gates[i]
    local spec = spec_of(use[1])
    charged[gate] = use
    if spec and spec[2] and not opens_at(spec, use, gate) then
      cache.spent[gate] = math.max(spent_until(use[1], use[2], gate), now) + span(spec, use[3])
    end
    local taken = all_taken[gate]
    if taken and type(taken) == 'table' then
      taken = taken[#taken]
    end
    if taken ~= id then -- one unit, however often the job names the gate
      if taken then
        gather(all_taken, gate, id)
      else
        all_taken[gate] = id
      end
      usage[gate] = usage[gate] and usage[gate] + 1
    end
  end
end

-- Nothing is left in the bucket of a gate with a rate. A debt is not forgiven.
local function drain(spec, use)
  local gate = gate_of(use)
  cache.spent[gate] = math.max(spent_until(use[1], use[2], gate), reckon() + span(spec, spec[3]))
  redis.call('HSET', prefix .. 'gates:' .. use[1], use[2], string.format('%.0f', cache.spent[gate]))
end

-- A job does not run any more: its units come back. Written by `settle`.
local function release_gates(special, id)
  for _, gate in ipairs(special.gates) do
    cache.usage[gate] = nil
    gather(pending.freed, gate, id)
  end
end

-- List gates without a rate as used, of those that are not yet: a table of keys by limit.
local function know_gates(unrated)
  for name, keys in pairs(unrated) do
    local key, new = prefix .. 'gates:' .. name, {}
    for i, known in ipairs(read_all('HMGET', key, keys)) do
      if not known then
        new[#new + 1] = keys[i]
        new[#new + 1] = ''
      end
    end
    wide('HSET', key, new, 2)
  end
end

-- Store what was taken. The answer names the gates with a rate: gate to {limit, key}.
local function write_gates()
  local rated, spent, unrated = {}, {}, {}
  if next(pending.charged) then
    redis.call('SET', prefix .. 'charged', string.format('%.0f', now))
  end
  for gate, use in pairs(pending.charged) do
    local name, spec = use[1], spec_of(use[1])
    if spec and spec[2] then
      local list = spent[name] or {}
      spent[name] = list
      list[#list + 1] = use[2]
      list[#list + 1] = string.format('%.0f', cache.spent[gate] or 0)
      rated[gate] = use
    else
      local keys = unrated[name] or {}
      unrated[name] = keys
      keys[#keys + 1] = use[2]
    end
  end
  for name, list in pairs(spent) do
    wide('HSET', prefix .. 'gates:' .. name, list, 2)
  end
  know_gates(unrated)
  send('SADD', pending.taken, 1, prefix .. 'holds:')
  pending.charged, pending.taken = nil, nil
  return rated
end
