-- Bays (lane groups): where lanes stand that last waited for the same of one gate. A bay is open or
-- closed as a whole. What a call learns and changes of bays is kept in memory; `bays.write` stores all
-- changes together. Who reads the lists of bays (open, timed, waits) calls it before.
--
-- Most bays have one lane, where limits have keys. Such a bay is lone: its record names the lane, it has no list of
-- lanes, and its head is what the lane's record says. So a claim that moves the head writes one record less. Bays of
-- older layouts have a list each, and are lone once they are touched.
-- use: jobs gates hints layouts

local PLACE = 34 -- bytes

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

local bays = {
  LAYOUT = 5, -- the first that knows lone bays
  LONE = 255, -- the ninth byte in the record of a lone bay; no priority begins with it
}

function bays.note_head(bay, priority, place)
  bay.priority, bay.place, bay.its_priority, bay.its_place = priority, place, priority, place
end

-- Read bays by name that this call has not read: one command for all of them, and one for lone lanes.
function bays.load(names)
  local missing, known = {}, cache.bays
  for _, name in ipairs(names) do
    if known[name] == nil then
      known[name] = false
      missing[#missing + 1] = name
    end
  end
  local lone, lanes = {}, {}
  for i, record in ipairs(read_all('HMGET', prefix .. 'bays', missing)) do
    if record then
      local at = struct.unpack('>d', record)
      local bay = { at = at, its_at = at, stored = true, gone = false, lone = false, its_lone = false }
      known[missing[i]] = bay
      if string.byte(record, 9) == bays.LONE then
        lone[#lone + 1], lanes[#lanes + 1] = bay, string.sub(record, 10)
      else
        bays.note_head(bay, struct.unpack('>dc34', record, 9))
      end
    end
  end
  for i, record in ipairs(read_all('HMGET', prefix .. 'lanes', lanes)) do
    local bay = lone[i]
    bay.lone, bay.its_lone = lanes[i], lanes[i]
    bays.note_head(bay, struct.unpack('>dc34', record))
  end
end

-- A bay: when it opens (0: it is open, -1: when a unit comes back), the priority and place of its head,
-- its only lane or false, the same as they are stored, and whether it is. False where there is none.
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
    local bay = {
      at = 0, priority = 0, place = '', stored = false, lone = false, its_at = 0, its_place = '',
      its_lone = false,
    }
    cache.bays[name], pending.bays[name] = bay, bay
  end
  return name
end

-- The first of its lanes is this one now; without a place there is none, and the bay goes.
function bays.head(name, priority, place)
  local bay = bays.get(name)
  if not place then
    bay.gone = true
  elseif bay.priority ~= priority or bay.place ~= place or bay.lone ~= bay.its_lone then
    bay.priority, bay.place = priority, place
  else
    return
  end
  pending.bays[name] = bay
end

-- The first two lanes in the list of a bay: members and priorities.
function bays.first_lanes(name)
  return redis.call('ZRANGE', prefix .. 'bay:' .. name, 0, 1, 'WITHSCORES')
end

-- Lanes join a bay without a list, where the lane `bay.lone` stands unless it has left: the same answer.
function bays.join_few(name, bay, joined, left)
  local stays = bay.lone and not left and bay.place .. bay.lone
  for i = 2, #joined, 2 do
    if joined[i] == stays then -- its priority has changed
      stays = false
    end
  end
  if stays then
    joined[#joined + 1] = bay.priority
    joined[#joined + 1] = stays
  end
  if #joined <= 2 then
    return { joined[2], joined[1] }
  end
  wide('ZADD', prefix .. 'bay:' .. name, joined, 2)
  return bays.first_lanes(name)
end

-- Make a bay follow its lanes: priorities and members of those that joined, or nil; the members that left, as
-- `gather` collects them, or nil. A lane whose first job has changed does both.
function bays.follow(name, joined, left)
  local bay, lanes = bays.get(name), nil
  if bay.place ~= '' and not bay.lone then -- it has a list, stored with the bay or made by this call
    wide('ZADD', prefix .. 'bay:' .. name, joined or {}, 2)
    send('ZREM', { [name] = left }, 1, prefix .. 'bay:')
    lanes = bays.first_lanes(name)
    if #lanes == 2 then
      redis.call('DEL', prefix .. 'bay:' .. name)
    end
  else
    lanes = bays.join_few(name, bay, joined or {}, left)
  end
  bay.lone = #lanes == 2 and string.sub(lanes[1], PLACE + 1)
  bays.head(name, tonumber(lanes[2]), lanes[1] and string.sub(lanes[1], 1, PLACE))
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

function bays.record(bay)
  if bay.lone then
    return struct.pack('>dB', bay.at, bays.LONE) .. bay.lone
  end
  return struct.pack('>dd', bay.at, bay.priority) .. bay.place
end

-- Store what has changed.
function bays.write()
  if not next(pending.bays) then
    return
  end
  local records, gone, made, unmade, zadd, zrem = {}, {}, {}, {}, {}, {}
  local shut, any_lone = { closed = {}, opened = {} }, false
  for name, bay in pairs(pending.bays) do
    bays.relist(name, bay, zadd, zrem, shut)
    if bay.gone then
      cache.bays[name] = false
      if bay.stored then
        gone[#gone + 1] = name
        gather(unmade, 'bays:' .. queue_of(name), name)
      end
    else
      if not (bay.stored and bay.lone and bay.lone == bay.its_lone and bay.at == bay.its_at) then
        records[#records + 1] = name
        records[#records + 1] = bays.record(bay)
        any_lone = any_lone or bay.lone
      end
      if not bay.stored then
        gather(made, 'bays:' .. queue_of(name), name)
      end
      bay.its_at, bay.its_lone, bay.stored = bay.at, bay.lone, true
      bays.note_head(bay, bay.priority, bay.place)
    end
  end
  pending.bays = nil
  if any_lone then -- older processes would look for a list of its lanes
    require_layout(bays.LAYOUT)
  end
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

-- The lanes of a bay, at most so many.
function bays.lanes(name, most)
  local lanes, bay = {}, bays.get(name)
  if bay and bay.lone or most < 1 then
    return { most > 0 and bay.lone or nil }
  end
  for i, member in ipairs(redis.call('ZRANGE', prefix .. 'bay:' .. name, 0, most - 1)) do
    lanes[i] = string.sub(member, PLACE + 1)
  end
  return lanes
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
