-- A claim on a queue with lanes: the common line and the open bays, merged by their heads.
-- use: jobs keys gates lanes lines

local EXTRA_VISITS = 64 -- lanes that one claim may look at in vain
local LARGEST_BITE = 64

-- A line: the members of a sorted set in order, read in chunks that grow. Nothing is written while
-- lines are read, so a number of members to skip is a place to continue from.
local function new_line(key, bite, rank)
  return { key = key, bite = bite, rank = rank, skip = 0, rows = {}, next = 1, more = true }
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
  return a.line.rank < b.line.rank
end

local function heap_push(heap, entry)
  local at = #heap + 1
  heap[at] = entry
  while at > 1 do
    local above = math.floor(at / 2)
    if not goes_before(entry, heap[above]) then
      return
    end
    heap[at], heap[above] = heap[above], entry
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
  return top.line
end

local function push(heap, line)
  local member, priority = line_head(line)
  if member then
    local due, seq = place_order(member)
    heap_push(heap, { priority = priority, due = due, seq = seq, line = line })
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

-- The job at the head of a line; nil where it cannot be read, and is noted.
local function head_job(line, place, visits)
  local id = string.sub(place, 18, 33)
  local asked = redis.call('HGET', prefix .. 'jobs', id)
  local kept = string.byte(place, PLACE) ~= 48 and redis.call('HGET', prefix .. 'state', id)
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
  if job and job.expires > 0 and job.expires <= now then
    if #visits.expired == visits.expiries then
      visits.cut_short = true
      return false
    end
    visits.expired[#visits.expired + 1] = job
  elseif job then
    if line.lane then
      local gate, cost, at = shut(job.special[4])
      if gate then
        visits.shut[bay_of('', gate, cost)] = at or -1
        park_lane(line.lane, gate, cost, at)
        return false
      end
      charge(job.special[4], job.id)
    end
    visits.chosen[#visits.chosen + 1] = job
  end
  advance(line)
  return true
end

-- Take a lane's first job, or park the lane.
local function visit_lane(line, visits)
  if visits.left == 0 then
    visits.cut_short = true
    return
  end
  visits.left = visits.left - 1
  if take_head(line, visits) then
    push(visits.heap, line)
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
  local lane = string.sub(member, PLACE + 1)
  if not visits.in_hand[lane] then
    local its = new_line(prefix .. 'lane:' .. lane, 2, 0)
    its.lane = lane
    visit_lane(its, visits)
  end
  if not visits.shut[line.need] then
    advance(line)
    push(visits.heap, line)
  end
end

-- Choose jobs of a queue in order. Gates are charged; nothing else about the jobs is written.
-- The answer: chosen, expired (jobs), damaged, and cut_short if it stopped at a bound.
local function visit(queue, wanted, expiries)
  local visits = {
    chosen = {}, expired = {}, damaged = {}, cut_short = false, expiries = expiries,
    left = wanted + EXTRA_VISITS, heap = {}, shut = {}, in_hand = {}, closing = {},
  }
  local common = new_line(prefix .. 'ready:' .. queue, wanted, 0)
  local bays = new_line(prefix .. 'open:' .. queue, wanted, 1)
  push(visits.heap, common)
  push(visits.heap, bays)
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
    if line == bays then
      local bay = string.sub(line_head(bays), PLACE + 1)
      advance(bays)
      push(visits.heap, bays)
      local its = new_line(prefix .. 'bay:' .. bay, 1, 1)
      local _, gate, cost = split_bay(bay)
      its.bay, its.need = bay, bay_of('', gate, cost)
      enter_bay(its, visits)
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
    set_bay(bay, at)
  end
  return visits
end
