-- Lanes: where limited jobs wait, so that a closed limit delays no other job; and bays (lane groups), where lanes
-- stand that last waited for the same of one gate. A bay is open or closed as a whole. What they are
-- for is said in the SQLite backend's lanes.py. Nothing here touches all lanes of a limit.
--
-- A script that changes the jobs of a lane records that (`enter_lane`, `leave_lane`) and calls `settle_lanes`
-- before the end: heads are read from the lines themselves, so they cannot drift.
-- use: jobs gates hints

local POSTPONED = 64 -- bays of one gate whose instant is put right after it was charged
local PLACE = 34 -- bytes

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
  local due, seq = struct.unpack('>dd', place, 2)
  if string.byte(place) == 0 then
    due = due - 2 ^ 56
  end
  return due, seq
end

-- --- names ---

local function lane_of(queue, key)
  return #queue .. ':' .. queue .. ':' .. key
end

local function bay_of(queue, gate, cost)
  return #queue .. ':' .. queue .. ':' .. string.format('%.17g', cost) .. ':' .. gate
end

-- The queue and what follows it, of a lane or bay.
local function split_name(name)
  local length, first = string.match(name, '^(%d+):()')
  local last = first + tonumber(length) - 1
  return string.sub(name, first, last), string.sub(name, last + 2)
end

-- Queue, gate and cost of a bay.
local function split_bay(bay)
  local queue, rest = split_name(bay)
  local cost, gate = string.match(rest, '^([^:]*):(.*)$')
  return queue, gate, tonumber(cost)
end

local function limit_of(gate)
  return string.match(gate, '^[^:]*')
end

-- --- bays ---

-- opens_at, the head's priority and place; nil where there is no such bay.
local function read_bay(bay)
  local stored = redis.call('HGET', prefix .. 'bays', bay)
  if not stored then
    return nil
  end
  local at, priority, rest = struct.unpack('>dd', stored)
  return at, priority, string.sub(stored, rest)
end

local function write_bay(bay, at, priority, place)
  redis.call('HSET', prefix .. 'bays', bay, struct.pack('>dd', at, priority) .. place)
end

-- Take a bay out of the lists of open and closed ones.
local function unlist_bay(bay, at, place)
  local queue, gate = split_bay(bay)
  if at == 0 then
    if place ~= '' then
      redis.call('ZREM', prefix .. 'open:' .. queue, place .. bay)
    end
    return
  end
  if at > 0 then
    redis.call('ZREM', prefix .. 'timed:' .. queue, bay)
  end
  local waits = prefix .. 'waits:' .. gate
  redis.call('ZREM', waits, bay)
  if redis.call('EXISTS', waits) == 0 then
    redis.call('SREM', prefix .. 'shut:' .. limit_of(gate), gate)
  end
end

local function list_bay(bay, at, priority, place)
  local queue, gate = split_bay(bay)
  if at == 0 then
    if place ~= '' then
      redis.call('ZADD', prefix .. 'open:' .. queue, priority, place .. bay)
    end
    return
  end
  if at > 0 then
    redis.call('ZADD', prefix .. 'timed:' .. queue, at, bay)
  end
  redis.call('ZADD', prefix .. 'waits:' .. gate, at > 0 and at or '+inf', bay)
  redis.call('SADD', prefix .. 'shut:' .. limit_of(gate), gate)
end

-- Open a bay (0), or close it until an instant or until a unit comes back (-1).
local function set_bay(bay, at)
  local before, priority, place = read_bay(bay)
  if before and before ~= at then
    write_bay(bay, at, priority, place)
    unlist_bay(bay, before, place)
    list_bay(bay, at, priority, place)
    if at == 0 then
      hints.tell((split_name(bay)))
    end
  end
end

-- The bay of a queue where lanes wait for so much of a gate; made, open, where there is none.
local function find_bay(queue, gate, cost)
  local bay = bay_of(queue, gate, cost)
  if redis.call('HEXISTS', prefix .. 'bays', bay) == 0 then
    write_bay(bay, 0, 0, '')
    redis.call('SADD', prefix .. 'bays:' .. queue, bay)
  end
  return bay
end

-- Follow the first of its lanes; a bay without lanes goes.
local function settle_bay(bay)
  local at, priority, place = read_bay(bay)
  local head = redis.call('ZRANGE', prefix .. 'bay:' .. bay, 0, 0, 'WITHSCORES')
  if not head[1] then
    redis.call('HDEL', prefix .. 'bays', bay)
    redis.call('SREM', prefix .. 'bays:' .. split_name(bay), bay)
    unlist_bay(bay, at, place)
    return
  end
  local its_priority, its_place = tonumber(head[2]), string.sub(head[1], 1, PLACE)
  if its_priority ~= priority or its_place ~= place then
    write_bay(bay, at, its_priority, its_place)
    if at == 0 then
      unlist_bay(bay, at, place)
      list_bay(bay, at, its_priority, its_place)
    end
  end
end

-- --- lanes ---

-- A job becomes ready in its lane.
local function enter_lane(job, special)
  local place = place_at(job.due, job.seq, job.id, '2')
  local lane = lane_of(job.queue, special[5])
  local line = prefix .. 'lane:' .. lane
  redis.call('ZADD', line, job.priority, place)
  hints.add(job.queue, 1)
  if job.expires > 0 then
    redis.call('ZADD', prefix .. 'lane_expiring:' .. job.queue, job.expires, place .. lane)
  end
  -- Most join behind others, and nothing changes.
  if not pending.touched[lane] and redis.call('ZRANGE', line, 0, 0)[1] == place then
    pending.touched[lane] = gate_of(special[4][1])
  end
end

-- Remove a job from its lane; true if it was there.
local function leave_lane(job, special)
  local place = place_at(job.due, job.seq, job.id, '2')
  local lane = lane_of(job.queue, special[5])
  if redis.call('ZREM', prefix .. 'lane:' .. lane, place) == 0 then
    return false
  end
  if job.expires > 0 then
    redis.call('ZREM', prefix .. 'lane_expiring:' .. job.queue, place .. lane)
  end
  pending.touched[lane] = pending.touched[lane] or gate_of(special[4][1])
  return true
end

-- A lane's head was refused: it waits for this.
local function park_lane(lane, gate, cost, at)
  pending.parked[lane] = { gate, cost, at }
  pending.touched[lane] = pending.touched[lane] or gate
end

-- The bay of a lane after a change.
local function lane_bay(lane, queue, bay, first_gate, changed)
  local refused = pending.parked[lane]
  if refused then
    bay = find_bay(queue, refused[1], refused[2])
    set_bay(bay, refused[3] or -1)
    return bay
  end
  if not bay then
    return find_bay(queue, first_gate, UNIT)
  end
  local _, gate, cost = split_bay(bay)
  if changed and cost ~= UNIT then
    -- Another job is at the head and may need fewer tokens: it has not asked yet.
    return find_bay(queue, gate, UNIT)
  end
  return bay
end

local function settle_lane(lane, first_gate, changed_bays)
  local stored = redis.call('HGET', prefix .. 'lanes', lane)
  local priority, place, bay
  if stored then
    priority, place, bay = struct.unpack('>dc34', stored), string.sub(stored, 9, 42),
      string.sub(stored, 43)
  end
  local head = redis.call('ZRANGE', prefix .. 'lane:' .. lane, 0, 0, 'WITHSCORES')
  if not head[1] then
    if bay then
      redis.call('HDEL', prefix .. 'lanes', lane)
      redis.call('ZREM', prefix .. 'bay:' .. bay, place .. lane)
      changed_bays[bay] = true
    end
    return
  end
  local its_priority, its_place = tonumber(head[2]), head[1]
  local changed = its_priority ~= priority or its_place ~= place
  local its_bay = lane_bay(lane, (split_name(lane)), bay, first_gate, changed)
  if changed or its_bay ~= bay then
    redis.call(
      'HSET', prefix .. 'lanes', lane, struct.pack('>d', its_priority) .. its_place .. its_bay
    )
    redis.call('ZADD', prefix .. 'bay:' .. its_bay, its_priority, its_place .. lane)
    if bay then
      if its_bay ~= bay or its_place ~= place then
        redis.call('ZREM', prefix .. 'bay:' .. bay, place .. lane)
      end
      changed_bays[bay] = true
    end
    changed_bays[its_bay] = true
  end
end

-- Make lanes and bays follow what was done to the jobs.
local function settle_lanes()
  local lanes, changed_bays = pending.touched, {}
  pending.touched = nil
  for lane, first_gate in pairs(lanes) do
    settle_lane(lane, first_gate, changed_bays)
  end
  pending.parked = nil
  for bay in pairs(changed_bays) do
    settle_bay(bay)
  end
end

-- --- opening ---

-- A unit of these gates (a table with gates as keys) has come back, or a breaker has closed. Few bays,
-- however many lanes: one per queue that uses the gate, where it is no matter of tokens.
local function open_gates(gates)
  for gate in pairs(gates) do
    local spec, from = spec_of(limit_of(gate)), '+inf'
    local till = 0
    if spec and spec[5] then
      till = open_until(spec, gate)
      from = till and '+inf' or '-inf' -- a closed breaker lets everybody in
      till = till and till > now and till or 0
    end
    for _, bay in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'waits:' .. gate, from, '+inf')) do
      set_bay(bay, till)
    end
  end
end

-- Lanes that wait for this gate may ask again.
local function open_gate(gate)
  for _, bay in ipairs(redis.call('ZRANGE', prefix .. 'waits:' .. gate, 0, -1)) do
    set_bay(bay, 0)
  end
end

-- Open the bays of a queue whose tokens have arrived; a bounded number at once.
local function open_timed(queue, most)
  local timed = prefix .. 'timed:' .. queue
  for _, bay in ipairs(redis.call('ZRANGEBYSCORE', timed, '-inf', now, 'LIMIT', 0, most)) do
    set_bay(bay, 0)
  end
end

-- The numbers of a limit have changed: lanes that wait for it may ask again.
local function open_limit(name)
  for _, gate in ipairs(redis.call('SMEMBERS', prefix .. 'shut:' .. name)) do
    open_gate(gate)
  end
end

-- Gates were charged (gate to {limit, key}): their bays open later than they thought.
local function postpone(rated)
  for gate, use in pairs(rated) do
    local spec, waits = spec_of(use[1]), prefix .. 'waits:' .. gate
    local bays = redis.call('ZRANGEBYSCORE', waits, '-inf', '(+inf', 'LIMIT', 0, POSTPONED)
    for _, bay in ipairs(bays) do
      local _, _, cost = split_bay(bay)
      local at = opens_at(spec, { use[1], use[2], cost })
      if at then
        set_bay(bay, at)
      end
    end
  end
end

-- --- the end of a claim ---

-- A job with limits does not run any more: its units come back. `settle` opens who waits for them.
local function let_go(job)
  local special = special_of(job)
  if special then
    release_gates(special[4], job.id)
    for _, use in ipairs(special[4]) do
      pending.freed[gate_of(use)] = true
    end
  end
end

-- What the end of a claim means for others: its breakers fail or close, its rates may be spent.
-- After `let_go`.
local function tell_gates(job, failed, succeeded, drains)
  local special, tripped = special_of(job), {}
  for _, use in ipairs(special and special[4] or {}) do
    local spec, gate = spec_of(use[1]), gate_of(use)
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
  open_gates(pending.freed)
  postpone(pending.emptied)
  pending.freed, pending.emptied = nil, nil
end
