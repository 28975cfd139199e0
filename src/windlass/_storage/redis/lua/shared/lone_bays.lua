-- Lone bays in a claim: the only lane of each is served and followed with few commands, and together with others.
-- use: jobs gates lanes merging

local lone_bays = { -- functions of one table, because one chunk has 200 locals at most
  MINUS = 45, -- the need of a bay begins with it where what is missing is a unit
  UNCHANGED = 48, -- the kind byte of jobs that have no state record
  FIRST_AHEAD = 8, MOST_AHEAD = 256, -- records that are read together
  ENDLESS = '\0\0\0\0\0\0\0\0', -- the expiry of most jobs, as it is stored
}

-- --- reading ---

-- Read the records of a job and of those behind it in a line, whose members begin with places.
local function read_ahead(line, place, visits)
  local sub, byte, rows = string.sub, string.byte, line.rows
  local ids, changed, n = { sub(place, 18, 33) }, {}, 1
  if byte(place, PLACE) ~= lone_bays.UNCHANGED then
    changed[1] = ids[1]
  end
  line.ahead = math.max(lone_bays.FIRST_AHEAD, math.min(2 * (line.ahead or 0), lone_bays.MOST_AHEAD))
  for at = line.next, math.min(#rows, line.next + 2 * line.ahead - 2), 2 do
    n = n + 1
    ids[n] = sub(rows[at], 18, 33)
    if byte(rows[at], PLACE) ~= lone_bays.UNCHANGED then
      changed[#changed + 1] = ids[n]
    end
  end
  local records, known = read_all('HMGET', prefix .. 'jobs', ids), visits.asked
  for i, id in ipairs(ids) do
    known[id] = records[i]
  end
  records, known = read_all('HMGET', prefix .. 'state', changed), visits.kept
  for i, id in ipairs(changed) do
    known[id] = records[i] or nil
  end
end

-- Note which gates of these bays no job uses, where that is so of all of them: one command, and none for each. Where a
-- gate is used, it is looked at alone, like those that are read later.
function lone_bays.note_unused(names, visits)
  local lone, usage, taken, at = visits.lone, cache.usage, pending.taken, visits.need_at
  local sub, byte, front, keys, gates, n = string.sub, string.byte, prefix .. 'holds:', {}, {}, 0
  for i = 1, #names do
    local name = names[i]
    if byte(name, at) == lone_bays.MINUS then
      local gate = sub(name, at + 3)
      if not usage[gate] and not taken[gate] then
        n = n + 1
        keys[n], gates[n] = front .. gate, gate
      end
    end
  end
  lone.unused = n > 0 and redis.call('EXISTS', unpack(keys)) == 0
  for i = 1, lone.unused and n or 0 do
    usage[gates[i]] = 0
  end
end

-- The same of the first open bay and those behind it, and which of them are lone.
function lone_bays.read_ahead(bay, place, visits)
  local sub, open, names, n = string.sub, visits.open, { bay }, 1
  read_ahead(open, place, visits)
  for at = open.next, math.min(#open.rows, open.next + 2 * open.ahead - 2), 2 do
    n = n + 1
    names[n] = sub(open.rows[at], PLACE + 1)
  end
  local known, byte = visits.lone_lanes, string.byte
  for i, record in ipairs(read_all('HMGET', prefix .. 'bays', names)) do
    known[names[i]] = record and byte(record, 9) == bays.LONE and sub(record, 10)
  end
  if visits.lone.unused then
    lone_bays.note_unused(names, visits)
  end
end

-- What a job that was never changed asks for, and the last byte of what a claim copies; nil if something must be
-- done for it at its start, or if it cannot be read.
local function glance_fresh(id, asked)
  if string.sub(asked, 12, 19) == lone_bays.ENDLESS
    and (string.byte(asked) ~= members.RECORD or not members.is_stopped(asked)) then
    local marks, special, last = glance_asked(id, asked)
    if marks and marks < STARTED and special ~= false then
      return special, last
    end
  end
end

-- --- taking jobs ---

-- What a claim knows of lone bays. Of lanes that it has taken from: their names, bays, members in the list of open
-- bays, next rows, and lines, of those that are merged. Then the order of the first that is not merged. Of refused lanes,
-- side by side: the same, their priorities, and where they move. `unused`: see `note_unused`.
function lone_bays.new()
  return {
    lanes = {}, bays = {}, members = {}, rows = {}, lines = {}, merged = 0, priority = NO_HEAD, due = 0, seq = 0,
    refused = { lanes = {}, bays = {}, members = {}, places = {}, priorities = {}, targets = {} }, unused = true,
  }
end

-- The head of a lone bay's lane was refused by another gate than the bay's: the lane moves to that gate's bay.
function lone_bays.refuse(visits, gate, cost, opens, lane, bay, member, place, priority)
  local all = visits.lone.refused
  local target = all.target
  if not target or target.gate ~= gate or target.cost ~= cost then -- most often it is the one before
    target = { gate = gate, cost = cost, need = need_of(gate, cost), opens = opens or -1 }
    target.bay = lane_of(visits.queue, target.need)
    all.target = target
  elseif target.opens ~= (opens or -1) then
    target.opens = opens or -1
  end
  visits.shut[target.need] = target.opens
  local n = #all.lanes + 1
  all.lanes[n], all.bays[n], all.members[n], all.places[n] = lane, bay, member, place
  all.priorities[n], all.targets[n] = priority, target
end

-- The lanes that `lone_bays.take_first` has taken from are merged with the others from now on: one of their next jobs is
-- before those of other lanes.
function lone_bays.merge(visits)
  local lone = visits.lone
  for i = lone.merged + 1, #lone.lanes do
    local line = lane_line(lone.lanes[i], lone.rows[i], 1)
    line.lone_in, lone.lines[i] = lone.bays[i], line
    push(visits.heap, line)
  end
  lone.merged, lone.priority = #lone.lanes, NO_HEAD
end

-- Whether all open bays that were read come before everything else: the answer is then the order of the last.
function lone_bays.all_first(visits, common)
  local open, top = visits.open, visits.heap[1]
  local last = visits.last_open
  if last.rows ~= open.rows then
    local at = #open.rows - 1
    last.rows, last.priority = open.rows, tonumber(open.rows[at + 1])
    last.due, last.seq = place_order(open.rows[at])
  end
  return goes_before(last, common) and goes_before(last, visits.lone)
    and (not top or goes_before(last, top)) and last
end

-- Note the next job of a lane, if there is one. Most often it comes after all that this claim wants.
function lone_bays.wait(lone, place, priority)
  priority = place and tonumber(priority)
  if place and priority <= lone.priority then
    local due, seq = place_order(place)
    if precedes(priority, due, seq, lone.priority, lone.due, lone.seq) then
      lone.priority, lone.due, lone.seq = priority, due, seq
    end
  end
end

-- Take the first jobs of the first open bays, which come before everything else up to `bound`, as long as each bay is
-- lone and waits for a unit, and its job was never changed: most. A job leaves its lane before that line is first read.
-- Where another gate refuses the job, its lane moves there. What ends this is left to `meet_bay`. Without a bound only
-- the first bay comes before everything else.
function lone_bays.take_first(visits, wanted, bound)
  local open, lone, lane_in, asked_of = visits.open, visits.lone, visits.lone_lanes, visits.asked
  local chosen, last_of, frees, rows, kept_of = visits.chosen, visits.last, visits.frees, open.rows, visits.kept
  local lanes, its_bays, members_of, next_of = lone.lanes, lone.bays, lone.members, lone.rows
  local in_hand = next(visits.in_hand) and visits.in_hand
  local sub, byte, call, front, need_at = string.sub, string.byte, redis.call, prefix .. 'lane:', visits.need_at
  local n, m, at, shut_needs = #chosen, #lone.lanes, open.next, next(visits.shut) and visits.shut
  local member = rows[at]
  while member and n < wanted and visits.left > 0 and goes_before(bound or open, lone) do
    local place, id, bay = sub(member, 1, PLACE), sub(member, 18, 33), sub(member, PLACE + 1)
    if lane_in[bay] == nil then
      open.next = at + 2
      lone_bays.read_ahead(bay, place, visits)
      open.next = at
    end
    local lane, asked = lane_in[bay], asked_of[id]
    if not lane or not asked or kept_of[id] or in_hand and in_hand[lane]
      or byte(bay, need_at) ~= lone_bays.MINUS or shut_needs and shut_needs[sub(bay, need_at)] then
      return
    end
    local special, last = glance_fresh(id, asked)
    if not special or #special[4] == 0 then
      return
    end
    local key, gate, cost, opens = front .. lane, shut(special)
    if gate and (cost == UNIT and sub(bay, need_at + 3) == gate) or not gate and call('ZREM', key, place) == 0 then
      return
    end
    if gate then
      lone_bays.refuse(visits, gate, cost, opens, lane, bay, member, place, rows[at + 1])
      shut_needs = visits.shut
    else
      charge(special, id)
      local next_rows = call('ZRANGE', key, 0, 0, 'WITHSCORES')
      n, m = n + 1, m + 1
      chosen[n], last_of[n], frees[n] = id, last, true
      lanes[m], its_bays[m], members_of[m], next_of[m] = lane, bay, member, next_rows
      lone_bays.wait(lone, next_rows[1], next_rows[2])
    end
    at = at + 2
    open.next, visits.left, member = at, visits.left - 1, bound and rows[at]
  end
end

-- --- afterwards ---

-- Lanes that were refused join the bays of what they wait for.
function lone_bays.move_refused(queue, all)
  local joined, targets, places, lanes, priorities = {}, all.targets, all.places, all.lanes, all.priorities
  for i = 1, #lanes do
    local target = targets[i]
    if not joined[target.bay] then
      bays.find(queue, target.gate, target.cost)
    end
    gather_scored(joined, target.bay, tonumber(priorities[i]), places[i] .. lanes[i])
    if targets[i + 1] ~= target then
      bays.set(target.bay, target.opens)
    end
  end
  for bay, members in pairs(joined) do
    bays.follow(bay, members, nil)
  end
end

-- The lanes of lone bays, which are open, follow their first jobs. What is stored of both is known without reading:
-- the list of open bays and the lines said it to this call.
function lone_bays.follow(queue, visits)
  local lone, pack = visits.lone, struct.pack
  local lanes, emptied, gone, joined, left, fronts, n = {}, {}, {}, {}, {}, {}, 0
  for i = 1, #lone.lanes do
    local line, rows, next_row = lone.lines[i], lone.rows[i], 1
    if line then
      rows, next_row = line.rows, line.next
    end
    if not line or line.lone_in then
      local lane, bay, place, priority = lone.lanes[i], lone.bays[i], rows[next_row], rows[next_row + 1]
      left[#left + 1] = lone.members[i]
      if place then
        local front = fronts[priority] or pack('>d', tonumber(priority)) -- as a text: a score
        fronts[priority] = front
        lanes[n + 1], lanes[n + 2] = lane, front .. place .. bay
        joined[n + 1], joined[n + 2] = priority, place .. bay
        n = n + 2
      else
        emptied[#emptied + 1], gone[#gone + 1] = lane, bay
      end
      cache.bays[bay] = nil
    end
  end
  local refused = lone.refused
  for i = 1, #refused.lanes do
    local priority, bay = refused.priorities[i], refused.bays[i]
    local front = fronts[priority] or pack('>d', tonumber(priority))
    fronts[priority] = front
    lanes[n + 1], lanes[n + 2] = refused.lanes[i], front .. refused.places[i] .. refused.targets[i].bay
    left[#left + 1], gone[#gone + 1] = refused.members[i], bay
    n, cache.bays[bay] = n + 2, nil
  end
  wide('HSET', prefix .. 'lanes', lanes, 2)
  wide('HDEL', prefix .. 'lanes', emptied, 1)
  wide('HDEL', prefix .. 'bays', gone, 1)
  wide('SREM', prefix .. 'bays:' .. queue, gone, 1)
  local open, listed = visits.open, prefix .. 'open:' .. queue
  if #left > 0 and #left == open.skip + (open.next - 1) / 2 then
    redis.call('ZREMRANGEBYRANK', listed, 0, #left - 1) -- all that were met, and nothing was written there since
  else
    wide('ZREM', listed, left, 1)
  end
  wide('ZADD', listed, joined, 2)
  lone_bays.move_refused(queue, lone.refused)
end
