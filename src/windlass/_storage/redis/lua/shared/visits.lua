-- A claim on a queue with lanes: the common line and the open bays, merged by their heads.
-- use: jobs keys gates lanes lines

local EXTRA_VISITS = 64 -- lanes that one claim may look at in vain
local LARGEST_BITE = 64
local NO_ROWS = {}
local FIRST_AHEAD, MOST_AHEAD = 8, 256 -- records that are read together

-- A line: the members of a sorted set in order, read in chunks that grow. Nothing is written while
-- lines are read, so a number of members to skip is a place to continue from.
local function new_line(key, bite, rank)
  return {
    key = key, bite = bite, rank = rank, skip = 0, rows = NO_ROWS, next = 1, more = true,
    priority = 0, due = 0, seq = 0, place = false, -- of its head
    lane = false, bay = false, need = false, source = false, ahead = 0,
  }
end

-- The member at the head and its priority; nil: there is none.
local function line_head(line)
  if not line.rows[line.next] and line.more then
    line.skip = line.skip + #line.rows / 2
    if #line.rows > 0 then
      line.bite = math.max(line.bite, math.min(2 * line.bite, LARGEST_BITE))
    end
    local last = line.skip + line.bite - 1
    line.rows = redis.call('ZRANGE', line.key, line.skip, last, 'WITHSCORES')
    line.next, line.more = 1, #line.rows == 2 * line.bite
  end
  local member = line.rows[line.next]
  return member, member and tonumber(line.rows[line.next + 1])
end

local function advance(line)
  line.next = line.next + 2
end

-- --- a heap of lines by their heads ---

local function goes_before(a, b)
  if a.priority ~= b.priority then
    return a.priority < b.priority
  elseif a.due ~= b.due then
    return a.due < b.due
  elseif a.seq ~= b.seq then
    return a.seq < b.seq
  end
  return a.rank < b.rank
end

local function heap_push(heap, line)
  local at = #heap + 1
  heap[at] = line
  while at > 1 do
    local above = math.floor(at / 2)
    if not goes_before(line, heap[above]) then
      return
    end
    heap[at], heap[above] = heap[above], line
    at = above
  end
end

local function heap_pop(heap)
  local top, last = heap[1], table.remove(heap)
  if #heap > 0 then
    local at = 1
    heap[1] = last
    while true do
      local least = at
      for below = 2 * at, 2 * at + 1 do
        if heap[below] and goes_before(heap[below], heap[least]) then
          least = below
        end
      end
      if least == at then
        break
      end
      heap[at], heap[least] = heap[least], heap[at]
      at = least
    end
  end
  return top
end

local function push(heap, line)
  local member, priority = line_head(line)
  if member then
    line.priority, line.due, line.seq = priority, place_order(member)
    heap_push(heap, line)
  end
end

-- --- visiting ---

-- A job that cannot be read leaves the line it was met in.
local function leave_unread(queue, lost)
  redis.call('ZREM', lost.key, lost.place)
  if lost.lane then
    pending.touched[lost.lane] = pending.touched[lost.lane] or ''
  end
end

-- Read the records of a job and of those behind it in a line, whose members begin with places.
local function read_ahead(line, place, visits)
  local ids = { string.sub(place, 18, 33) }
  line.ahead = math.max(FIRST_AHEAD, math.min(2 * line.ahead, MOST_AHEAD))
  for at = line.next, math.min(#line.rows, line.next + 2 * line.ahead - 2), 2 do
    ids[#ids + 1] = string.sub(line.rows[at], 18, 33)
  end
  local asked, kept = read_all('HMGET', prefix .. 'jobs', ids), {}
  if string.byte(place, PLACE) ~= 48 then
    kept = read_all('HMGET', prefix .. 'state', ids)
  end
  for i, id in ipairs(ids) do
    visits.asked[id], visits.kept[id] = asked[i], kept[i]
  end
end

-- The job at the head of a line; nil where it cannot be read, and is noted. Of jobs that were never
-- changed and that nothing is to be done for, most, the claim needs little: `last` says so.
local function head_job(line, place, visits)
  local id = string.sub(place, 18, 33)
  if visits.asked[id] == nil then
    read_ahead(line.source or line, place, visits)
  end
  line.source = false
  local asked, kept = visits.asked[id], visits.kept[id]
  if kept == nil then
    kept = string.byte(place, PLACE) ~= 48 and redis.call('HGET', prefix .. 'state', id)
  end
  if asked and not kept then
    local expires, marks, special, last = glance_asked(id, asked)
    if expires == 0 and not has(marks, STARTED) and special ~= false
      and (not line.lane or special and #special[4] > 0) then
      return { id = id, asked = asked, special = special, last = last, expires = 0 }
    end
  end
  local job, reason = parse_job(id, asked, kept)
  if job and line.lane and not (special_of(job) and #job.special[4] > 0) then
    job, reason = nil, 'its limits cannot be read'
  end
  if not job then
    visits.damaged[#visits.damaged + 1] = {
      id = id, reason = reason, asked = asked, kept = kept, key = line.key, place = place,
      lane = line.lane,
    }
  end
  return job
end

-- Choose or discard the head and continue; false: it was refused, and its lane with it.
local function take_head(line, visits)
  local place = line_head(line)
  if not place then
    return false
  end
  local job = head_job(line, place, visits)
  if job and (job.expires > 0 and job.expires <= now or members.is_stopped(job.asked)) then
    if #visits.expired == visits.expiries then
      visits.cut_short = true
      return false
    end
    visits.expired[#visits.expired + 1] = job
  elseif job then
    if line.lane then
      local gate, cost, at = shut(job.special[4])
      if gate then
        visits.shut[need_of(gate, cost)] = at or -1
        park_lane(line.lane, gate, cost, at)
        return false
      end
      charge(job.special[4], job.id)
    end
    visits.chosen[#visits.chosen + 1] = job
    if job.expires == 0 then
      gather(visits.taken, line.key, place)
    end
  end
  advance(line)
  return true
end

-- The chosen jobs leave their lines, all of a line together.
local function leave_lines(visits)
  send('ZREM', visits.taken, 1, '')
  for _, job in ipairs(visits.chosen) do
    if job.expires > 0 then
      leave_line(job)
    elseif not job.last then
      retries.drop(job)
    end
  end
  for lane, head in pairs(visits.heads) do
    pending.touched[lane] = pending.touched[lane] or ''
    pending.heads[lane] = head
  end
end

-- Take a lane's first job, or park the lane.
local function visit_lane(line, visits)
  if visits.left == 0 then
    visits.cut_short = true
    return
  end
  visits.left = visits.left - 1
  visits.lanes[line.lane] = line
  if take_head(line, visits) then
    push(visits.heap, line)
  end
end

-- Visit the lane that this member of a bay names. Records of other heads are read ahead from `source`.
local function visit_first(member, source, visits)
  local lane = string.sub(member, PLACE + 1)
  if not visits.in_hand[lane] then
    local line = new_line(prefix .. 'lane:' .. lane, 2, 0)
    line.lane, line.source = lane, source
    visit_lane(line, visits)
  end
end

-- Visit the first lane of a bay, unless it is known by now that the bay is closed.
local function enter_bay(line, visits)
  local known = visits.shut[line.need]
  if known then
    visits.closing[line.bay] = known
    return
  end
  local member = line_head(line)
  if not member then
    return
  end
  visit_first(member, line, visits)
  if not visits.shut[line.need] then
    advance(line)
    push(visits.heap, line)
  end
end

-- Begin with an open bay. Most have one lane, and need no line.
local function meet_bay(bay, queue, open, visits)
  local need = string.sub(bay, #lane_of(queue, '') + 1)
  local known = visits.shut[need]
  if known then
    visits.closing[bay] = known
    return
  end
  local first = redis.call('ZRANGE', prefix .. 'bay:' .. bay, 0, 1)
  if first[1] and not first[2] then
    pending.alone[bay] = true
    visit_first(first[1], open, visits)
  else
    local line = new_line(prefix .. 'bay:' .. bay, 2, 1)
    line.bay, line.need = bay, need
    enter_bay(line, visits)
  end
end

-- Choose jobs of a queue in order. Gates are charged; nothing else about the jobs is written.
-- The answer: chosen, expired (jobs), damaged, and cut_short if it stopped at a bound.
local function visit(queue, wanted, expiries)
  local visits = {
    chosen = {}, expired = {}, damaged = {}, cut_short = false, expiries = expiries,
    left = wanted + EXTRA_VISITS, heap = {}, shut = {}, in_hand = {}, closing = {},
    asked = {}, kept = {}, taken = {}, lanes = {}, heads = {},
  }
  local common = new_line(prefix .. 'ready:' .. queue, wanted, 0)
  local open = new_line(prefix .. 'open:' .. queue, wanted, 1)
  push(visits.heap, common)
  push(visits.heap, open)
  -- Lanes whose first job has expired, also in closed bays: behind it may stand one that needs less.
  local late = redis.call(
    'ZRANGEBYSCORE', prefix .. 'lane_expiring:' .. queue, '-inf', now, 'LIMIT', 0, expiries
  )
  for _, member in ipairs(late) do
    local lane = string.sub(member, PLACE + 1)
    local line = new_line(prefix .. 'lane:' .. lane, 2, 0)
    line.lane = lane
    if line_head(line) == string.sub(member, 1, PLACE) then
      visits.in_hand[lane] = true
      push(visits.heap, line)
    end
  end
  while #visits.heap > 0 and #visits.chosen < wanted and not visits.cut_short do
    local line = heap_pop(visits.heap)
    if line == open then
      local bay = string.sub(line_head(open), PLACE + 1)
      advance(open)
      push(visits.heap, open)
      meet_bay(bay, queue, open, visits)
    elseif line.bay then
      enter_bay(line, visits)
    elseif line.lane then
      visit_lane(line, visits)
    else
      take_head(line, visits)
      push(visits.heap, line)
    end
  end
  for bay, at in pairs(visits.closing) do
    bays.set(bay, at)
  end
  -- All jobs before these leave the lanes.
  for lane, line in pairs(visits.lanes) do
    line.place, line.priority = line_head(line)
    visits.heads[lane] = line.place and line or false
  end
  return visits
end
