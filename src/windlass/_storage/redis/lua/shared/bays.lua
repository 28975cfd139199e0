-- Bays (lane groups): where lanes stand that last waited for the same of one gate. A bay is open or
-- closed as a whole. What a call learns and changes of bays is kept in memory; `bays.write` stores all
-- changes together. Who reads the lists of bays (open, timed, waits) calls it before.
-- use: jobs gates hints

-- --- names ---

local function lane_of(queue, key)
  local front = cache.fronts[queue]
  if not front then
    front = #queue .. ':' .. queue .. ':'
    cache.fronts[queue] = front
  end
  return front .. key
end

-- What lanes of a bay wait for.
local function need_of(gate, cost)
  return (cost == UNIT and '-1' or string.format('%.17g', cost)) .. ':' .. gate
end

local function bay_of(queue, gate, cost)
  return lane_of(queue, need_of(gate, cost))
end

-- The queue of a lane or bay, and where in its name it ends.
local function queue_of(name)
  local first = string.find(name, ':', 1, true) + 1
  local last = first + tonumber(string.sub(name, 1, first - 2)) - 1
  return string.sub(name, first, last), last
end

-- The queue and what follows it, of a lane or bay.
local function split_name(name)
  local queue, last = queue_of(name)
  return queue, string.sub(name, last + 2)
end

-- Queue, gate and cost of a bay.
local function split_bay(bay)
  local queue, rest = split_name(bay)
  local cost, gate = string.match(rest, '^([^:]*):(.*)$')
  return queue, gate, tonumber(cost)
end

local function waits_for_unit(bay)
  local _, last = queue_of(bay)
  return string.sub(bay, last + 2, last + 4) == '-1:'
end

local function limit_of(gate)
  return string.match(gate, '^[^:]*')
end

-- --- bays ---

local bays = {}

-- Read bays by name that this call has not read: one command for all of them.
function bays.load(names)
  local missing, known = {}, cache.bays
  for _, name in ipairs(names) do
    if known[name] == nil then
      known[name] = false
      missing[#missing + 1] = name
    end
  end
  for i, record in ipairs(read_all('HMGET', prefix .. 'bays', missing)) do
    if record then
      local at, priority, rest = struct.unpack('>dd', record)
      local place = string.sub(record, rest)
      known[missing[i]] = {
        at = at, priority = priority, place = place, stored = true, gone = false,
        its_at = at, its_priority = priority, its_place = place,
      }
    end
  end
end

-- A bay: when it opens (0: it is open, -1: when a unit comes back), the priority and place of its head,
-- the same as they are stored, and whether it is. False where there is none.
function bays.get(name)
  if cache.bays[name] == nil then
    bays.load({ name })
  end
  return cache.bays[name]
end

-- Open a bay (0), or close it until an instant or until a unit comes back (-1).
function bays.set(name, at)
  local bay = bays.get(name)
  if bay and bay.at ~= at then
    bay.at = at
    pending.bays[name] = bay
  end
end

-- The name of the bay of a queue where lanes wait for this much of a gate; made, open, where there is none.
function bays.find(queue, gate, cost)
  local name = bay_of(queue, gate, cost)
  if not bays.get(name) then
    local bay = { at = 0, priority = 0, place = '', stored = false, its_at = 0, its_place = '' }
    cache.bays[name], pending.bays[name] = bay, bay
  end
  return name
end

-- The first of its lanes is this one now; without a place there is none, and the bay goes.
function bays.head(name, priority, place)
  local bay = bays.get(name)
  if not place then
    bay.gone = true
  elseif bay.priority ~= priority or bay.place ~= place then
    bay.priority, bay.place = priority, place
  else
    return
  end
  pending.bays[name] = bay
end

-- --- writing ---

-- Note the changes of the lists that name a bay: open ones by place, closed ones by instant and gate.
function bays.relist(name, bay, zadd, zrem, shut)
  local queue = queue_of(name)
  local was, at = bay.its_at, not bay.gone and bay.at or nil
  local is_open = at == 0 and bay.place ~= ''
  local same_head = bay.place == bay.its_place
  if was == 0 and bay.its_place ~= '' and not (is_open and same_head) then
    gather(zrem, 'open:' .. queue, bay.its_place .. name)
  end
  if is_open and not (was == 0 and same_head and bay.priority == bay.its_priority) then
    gather_scored(zadd, 'open:' .. queue, bay.priority, bay.place .. name)
  end
  if was ~= at then
    local _, gate = split_bay(name)
    if was > 0 and (at or 0) <= 0 then
      gather(zrem, 'timed:' .. queue, name)
    end
    if (at or 0) > 0 then
      gather_scored(zadd, 'timed:' .. queue, at, name)
    end
    if (at or 0) ~= 0 then
      gather_scored(zadd, 'waits:' .. gate, at > 0 and at or '+inf', name)
      gather(shut.closed, 'shut:' .. limit_of(gate), gate)
    elseif was ~= 0 then
      gather(zrem, 'waits:' .. gate, name)
      shut.opened[gate] = true
    end
    if at == 0 then
      hints.tell(queue)
    end
  end
end

-- Store what has changed.
function bays.write()
  if not next(pending.bays) then
    return
  end
  local records, gone, made, unmade, zadd, zrem = {}, {}, {}, {}, {}, {}
  local shut = { closed = {}, opened = {} }
  for name, bay in pairs(pending.bays) do
    bays.relist(name, bay, zadd, zrem, shut)
    if bay.gone then
      cache.bays[name] = false
      if bay.stored then
        gone[#gone + 1] = name
        gather(unmade, 'bays:' .. queue_of(name), name)
      end
    else
      records[#records + 1] = name
      records[#records + 1] = struct.pack('>dd', bay.at, bay.priority) .. bay.place
      if not bay.stored then
        gather(made, 'bays:' .. queue_of(name), name)
      end
      bay.its_at, bay.its_priority, bay.its_place, bay.stored = bay.at, bay.priority, bay.place, true
    end
  end
  pending.bays = nil
  wide('HSET', prefix .. 'bays', records, 2)
  wide('HDEL', prefix .. 'bays', gone, 1)
  send('SADD', made, 1, prefix)
  send('SREM', unmade, 1, prefix)
  send('ZADD', zadd, 2, prefix)
  send('ZREM', zrem, 1, prefix)
  send('SADD', shut.closed, 1, prefix)
  local empty = {}
  for gate in pairs(shut.opened) do
    if redis.call('EXISTS', prefix .. 'waits:' .. gate) == 0 then
      gather(empty, 'shut:' .. limit_of(gate), gate)
    end
  end
  send('SREM', empty, 1, prefix)
end

-- Of these gates (a table with gates as keys), those that bays wait for.
function bays.awaited(gates)
  local asked, found = {}, {}
  for gate in pairs(gates) do
    local limit = limit_of(gate)
    local names = asked[limit] or {}
    asked[limit] = names
    names[#names + 1] = gate
  end
  for limit, names in pairs(asked) do
    for i, is in ipairs(read_all('SMISMEMBER', prefix .. 'shut:' .. limit, names)) do
      if is == 1 then
        found[#found + 1] = names[i]
      end
    end
  end
  return found
end
