-- Lanes: where limited jobs wait, so that a closed limit delays no other job; and bays (lane groups), where lanes
-- stand that last waited for the same of one gate. A bay is open or closed as a whole. What they are
-- for is said in the SQLite backend's lanes.py. Nothing here touches all lanes of a limit.
--
-- A script that changes the jobs of a lane records that (`enter_lane`, `leave_lane`) and calls `settle_lanes`
-- before the end, which reads and writes the records of all these lanes together. Heads are read from the
-- lines themselves, by it or by the claim that took the jobs before them, so they cannot drift.
-- use: jobs gates hints bays

local POSTPONED = 64 -- bays of one gate whose instant is put right after it was charged

-- --- places ---

-- Position of a waiting job among those of its priority: see layout.py. Kind is its last byte.
local function place_at(due, seq, id, kind)
  if due < 0 then
    return '\0' .. struct.pack('>dd', due + 2 ^ 56, seq) .. id .. kind
  end
  return '\1' .. struct.pack('>dd', due, seq) .. id .. kind
end

-- Due time and number again. Lua compares strings by the server's locale, so places are compared
-- by these.
local function place_order(place)
  local sign, due, seq = struct.unpack('>Bdd', place)
  return sign == 0 and due - 2 ^ 56 or due, seq
end

-- Whether a job goes before another one of the same queue.
local function precedes(priority, due, seq, its_priority, its_due, its_seq)
  if priority ~= its_priority then
    return priority < its_priority
  elseif due ~= its_due then
    return due < its_due
  end
  return seq < its_seq
end

-- --- lanes ---

-- A job becomes ready in its lane. Written by `write_entered`, together with others.
local function enter_lane(job, special)
  local lane = lane_of(job.queue, special[5])
  local place = place_at(job.due, job.seq, job.id, '2')
  local line = pending.entered[lane]
  if line then
    local n = #line
    line[n + 1], line[n + 2] = job.priority, place
  else
    pending.entered[lane] = { job.priority, place, gate = special.gates[1] }
  end
  hints.add(job.queue, 1)
  if job.expires > 0 then
    redis.call('ZADD', prefix .. 'lane_expiring:' .. job.queue, job.expires, place .. lane)
  end
end

-- The first of the jobs that entered a lane: its priority, due time, number and place.
local function first_entered(line)
  local priority, place = line[1], line[2]
  local due, seq = place_order(place)
  for i = 3, #line, 2 do
    local its_due, its_seq = place_order(line[i + 1])
    if precedes(line[i], its_due, its_seq, priority, due, seq) then
      priority, due, seq, place = line[i], its_due, its_seq, line[i + 1]
    end
  end
  return priority, due, seq, place
end

-- Store the jobs that became ready in lanes. Most join behind others, and nothing changes.
local function write_entered()
  local names, lines = {}, pending.entered
  for lane in pairs(lines) do
    names[#names + 1] = lane
  end
  pending.entered = nil
  for i, stored in ipairs(read_all('HMGET', prefix .. 'lanes', names)) do
    local lane = names[i]
    local line = lines[lane]
    if #line == 2 then
      redis.call('ZADD', prefix .. 'lane:' .. lane, line[1], line[2])
    else
      wide('ZADD', prefix .. 'lane:' .. lane, line, 2)
    end
    if pending.touched[lane] then
      pending.heads[lane] = nil
    else
      local priority, due, seq, place = first_entered(line)
      local first = not stored
      if stored then
        local its_priority, sign, its_due, its_seq = struct.unpack('>dBdd', stored)
        its_due = sign == 0 and its_due - 2 ^ 56 or its_due
        first = precedes(priority, due, seq, its_priority, its_due, its_seq)
      end
      if first then
        pending.touched[lane] = line.gate
        pending.heads[lane] = { priority = priority, place = place }
      end
    end
  end
end

-- Remove a job from its lane; true if it was there.
local function leave_lane(job, special)
  local place = place_at(job.due, job.seq, job.id, '2')
  local lane = lane_of(job.queue, special[5])
  if pending.entered[lane] then
    write_entered()
  end
  if redis.call('ZREM', prefix .. 'lane:' .. lane, place) == 0 then
    return false
  end
  if job.expires > 0 then
    redis.call('ZREM', prefix .. 'lane_expiring:' .. job.queue, place .. lane)
  end
  pending.touched[lane] = pending.touched[lane] or special.gates[1]
  pending.heads[lane] = nil
  return true
end

-- A lane's head was refused: it waits for this.
local function park_lane(lane, gate, cost, at)
  pending.parked[lane] = { gate, cost, at }
  pending.touched[lane] = pending.touched[lane] or gate
end

-- The first of a line, as its member and priority; nil where it is empty.
local function first_of(key)
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return head[1], head[1] and tonumber(head[2])
end

-- The first job of a lane, from the line itself, unless the call knows it: its place and priority.
local function lane_head(lane)
  local known = pending.heads[lane]
  if known == nil then
    return first_of(prefix .. 'lane:' .. lane)
  elseif known then
    return known.place, known.priority
  end
end

-- The bay of a lane after a change.
local function lane_bay(lane, bay, changed)
  local refused = pending.parked[lane]
  if refused then
    bay = bays.find((queue_of(lane)), refused[1], refused[2])
    bays.set(bay, refused[3] or -1)
    return bay
  end
  if not bay then
    return bays.find((queue_of(lane)), pending.touched[lane], UNIT)
  end
  if changed and not waits_for_unit(bay) then
    -- Another job is at the head and may need fewer tokens: it has not asked yet.
    local queue, gate = split_bay(bay)
    return bays.find(queue, gate, UNIT)
  end
  return bay
end

-- Follow a lane's first job: its record, and its place in its bay. `changes` collects what is written.
local function settle_lane(lane, stored, changes)
  local place, priority = lane_head(lane)
  local its_priority, its_place, its_bay
  if stored then
    its_priority, its_place = struct.unpack('>dc34', stored)
    its_bay = string.sub(stored, 43)
  end
  if not place then
    if stored then
      changes.gone[#changes.gone + 1] = lane
      gather(changes.left, its_bay, its_place .. lane)
    end
    return
  end
  local changed = priority ~= its_priority or place ~= its_place
  local bay = lane_bay(lane, its_bay, changed)
  if changed or bay ~= its_bay then
    local records = changes.records
    records[#records + 1] = lane
    records[#records + 1] = struct.pack('>d', priority) .. place .. bay
    gather_scored(changes.joined, bay, priority, place .. lane)
    if stored and (bay ~= its_bay or place ~= its_place) then
      gather(changes.left, its_bay, its_place .. lane)
    end
  end
end

-- Make the lanes that were touched, and their bays, follow what was done to the jobs.
local function settle_touched()
  local names, known, changes = {}, {}, { records = {}, gone = {}, joined = {}, left = {} }
  for lane in pairs(pending.touched) do
    names[#names + 1] = lane
  end
  local stored = read_all('HMGET', prefix .. 'lanes', names)
  for i, lane in ipairs(names) do
    known[i] = stored[i] and string.sub(stored[i], 43)
      or bay_of(queue_of(lane), pending.touched[lane], UNIT)
  end
  bays.load(known)
  for i, lane in ipairs(names) do
    settle_lane(lane, stored[i], changes)
  end
  wide('HSET', prefix .. 'lanes', changes.records, 2)
  wide('HDEL', prefix .. 'lanes', changes.gone, 1)
  for bay, joined in pairs(changes.joined) do
    bays.follow(bay, joined, changes.left[bay])
  end
  for bay, left in pairs(changes.left) do
    if not changes.joined[bay] then
      bays.follow(bay, nil, left)
    end
  end
end

-- Make lanes and bays follow what was done to the jobs.
local function settle_lanes()
  write_entered()
  if next(pending.touched) then
    settle_touched()
  end
  pending.touched, pending.parked, pending.heads = nil, nil, nil
  bays.write()
end

-- --- opening ---

local function set_bays(names, at)
  bays.load(names)
  for _, bay in ipairs(names) do
    bays.set(bay, at)
  end
end

-- A unit of these gates (a table with gates as keys) has come back, or a breaker has closed. Few bays,
-- however many lanes: one per queue that uses the gate, where it is no matter of tokens.
local function open_gates(gates)
  for _, gate in ipairs(bays.awaited(gates)) do
    local spec, from = spec_of(limit_of(gate)), '+inf'
    local till = 0
    if spec and spec[5] then
      till = open_until(spec, gate)
      from = till and '+inf' or '-inf' -- a closed breaker lets everybody in
      till = till and till > now and till or 0
    end
    set_bays(redis.call('ZRANGEBYSCORE', prefix .. 'waits:' .. gate, from, '+inf'), till)
  end
  bays.write()
end

-- Lanes that wait for this gate may ask again.
local function open_gate(gate)
  set_bays(redis.call('ZRANGE', prefix .. 'waits:' .. gate, 0, -1), 0)
  bays.write()
end

-- Open the bays of a queue whose tokens have arrived; a bounded number at once.
local function open_timed(queue, most)
  local timed = prefix .. 'timed:' .. queue
  set_bays(redis.call('ZRANGEBYSCORE', timed, '-inf', now, 'LIMIT', 0, most), 0)
  bays.write()
end

-- The numbers of a limit have changed: lanes that wait for it may ask again.
local function open_limit(name)
  for _, gate in ipairs(redis.call('SMEMBERS', prefix .. 'shut:' .. name)) do
    open_gate(gate)
  end
end

-- Gates were charged (gate to {limit, key}): their bays open later than they thought.
local function postpone(rated)
  for _, gate in ipairs(bays.awaited(rated)) do
    local use, waits = rated[gate], prefix .. 'waits:' .. gate
    local spec = spec_of(use[1])
    local late = redis.call('ZRANGEBYSCORE', waits, '-inf', '(+inf', 'LIMIT', 0, POSTPONED)
    bays.load(late)
    for _, bay in ipairs(late) do
      local _, _, cost = split_bay(bay)
      local at = opens_at(spec, { use[1], use[2], cost }, gate)
      if at then
        bays.set(bay, at)
      end
    end
  end
  bays.write()
end

-- --- the end of a claim ---

-- A job with limits does not run any more: its units come back. `settle` opens who waits for them.
local function let_go(job)
  local special = special_of(job)
  if special then
    release_gates(special, job.id)
  end
end

-- What the end of a claim means for others: its breakers fail or close, its rates may be spent.
-- After `let_go`.
local function tell_gates(job, failed, succeeded, drains)
  local special, tripped = special_of(job), {}
  for i, use in ipairs(special and special[4] or {}) do
    local spec, gate = spec_of(use[1]), special.gates[i]
    if spec and spec[5] and failed then
      if not tripped[gate] then -- one failure, however often it names the breaker
        tripped[gate] = true
        trip(spec, gate)
      end
    elseif spec and spec[5] and succeeded then
      close_breaker(gate)
    elseif spec and spec[2] and drains then
      drain(spec, use)
      pending.emptied[gate] = use
    end
  end
end

local function open_freed()
  send('SREM', pending.freed, 1, prefix .. 'holds:')
  open_gates(pending.freed)
  postpone(pending.emptied)
  pending.freed, pending.emptied = nil, nil
end
