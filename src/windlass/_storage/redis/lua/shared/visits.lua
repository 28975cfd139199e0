-- A claim on a queue with lanes: the common line and the open bays, merged by their heads.
-- use: jobs keys gates lanes lines merging lone_bays

local EXTRA_VISITS = 64 -- lanes that one claim may look at in vain

-- --- taking jobs ---

-- A job that cannot be read leaves the line it was met in.
local function leave_unread(queue, lost)
  redis.call('ZREM', lost.key, lost.place)
  if lost.lane then
    pending.touched[lost.lane] = pending.touched[lost.lane] or ''
  end
end

-- A lane is not one that `lone_bays.follow` can write: its record and its bay's are read.
local function settle_later(line)
  line.lone_in = false
end

-- A job that must be read as a whole. Nil where it cannot be read, and is noted.
local function whole_job(line, place, asked, kept, visits)
  local id = string.sub(place, 18, 33)
  local job, reason = parse_job(id, asked, kept)
  if job and line.lane and not (special_of(job) and #job.special[4] > 0) then
    job, reason = nil, 'its limits cannot be read'
  end
  if not job then
    visits.damaged[#visits.damaged + 1] = {
      id = id, reason = reason, asked = asked, kept = kept, place = place, lane = line.lane,
      key = line.key or prefix .. 'lane:' .. line.lane,
    }
  end
  return job
end

-- Take from the gates for a job of a lane; false: one is shut, and the lane waits for it.
local function admit(line, special, id, visits)
  local gate, cost, at = shut(special)
  if gate then
    visits.shut[need_of(gate, cost)] = at or -1
    settle_later(line)
    park_lane(line.lane, gate, cost, at)
    return false
  end
  charge(special, id)
  return true
end

-- A job is chosen: as it is, or only its id with `last` and whether its end frees something. It leaves its
-- line with others, unless it expires.
local function choose(line, place, job, visits, last, frees)
  local n = #visits.chosen + 1
  visits.chosen[n], visits.last[n], visits.frees[n] = job, last, frees
  if last or job.expires == 0 then
    if line.lane then
      gather(visits.taken, line.lane, place)
    else
      visits.common[#visits.common + 1] = place
    end
  end
end

-- Choose or discard the head and continue; false: it was refused, and its lane with it. Of jobs that were never
-- changed and that nothing is to be done for, most, the claim needs little: see `choose`. Records of other
-- heads are read ahead from `source`.
local function take_head(line, visits, source)
  local place = line_head(line)
  if not place then
    return false
  end
  local id = string.sub(place, 18, 33)
  if visits.asked[id] == nil then
    read_ahead(source, place, visits)
  end
  local asked, kept = visits.asked[id], visits.kept[id]
  local special, last
  if asked and not kept then
    special, last = glance_fresh(id, asked)
  end
  if last and (not line.lane or special and #special[4] > 0) then
    if line.lane and not admit(line, special, id, visits) then
      return false
    end
    choose(line, place, id, visits, last, special ~= nil)
    advance(line)
    return true
  end
  settle_later(line)
  local job = whole_job(line, place, asked, kept, visits)
  if job and (job.expires > 0 and job.expires <= now or members.is_stopped(job.asked)) then
    if #visits.expired == visits.expiries then
      visits.cut_short = true
      return false
    end
    visits.expired[#visits.expired + 1] = job
  elseif job then
    if line.lane and not admit(line, job.special, job.id, visits) then
      return false
    end
    choose(line, place, job, visits, false, false)
  end
  advance(line)
  return true
end

-- --- afterwards ---

-- The chosen jobs leave their lines, all of a line together.
local function leave_lines(queue, visits)
  wide('ZREM', prefix .. 'ready:' .. queue, visits.common, 1)
  send('ZREM', visits.taken, 1, prefix .. 'lane:')
  for i, job in ipairs(visits.chosen) do
    if not visits.last[i] then
      if job.expires > 0 then
        leave_line(job)
      else
        retries.drop(job)
      end
    end
  end
  lone_bays.follow(queue, visits)
  -- All heads were read by the visit: nothing is read from a line that has lost jobs.
  for lane, line in pairs(visits.lanes) do
    if not line.lone_in then
      line.place, line.priority = line_head(line)
      pending.touched[lane] = pending.touched[lane] or ''
      pending.heads[lane] = line.place and line or false
    end
  end
end

-- --- visiting lanes and bays ---

-- Take a lane's first job, or park the lane.
local function visit_lane(line, visits, source)
  if visits.left == 0 then
    visits.cut_short = true
    return
  end
  visits.left = visits.left - 1
  visits.lanes[line.lane] = line
  if take_head(line, visits, source) then
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
    visit_lane(read_lane(lane), visits, line)
  end
  if not visits.shut[line.need] then
    advance(line)
    push(visits.heap, line)
  end
end

-- Begin with the first open bay.
local function meet_bay(visits)
  local open = visits.open
  local member, priority = open.rows[open.next], open.rows[open.next + 1]
  local bay = string.sub(member, PLACE + 1)
  advance(open)
  local known = next(visits.shut) and visits.shut[string.sub(bay, visits.need_at)]
  if known then
    visits.closing[bay] = known
    return
  end
  local place = string.sub(member, 1, PLACE)
  if visits.lone_lanes[bay] == nil then
    lone_bays.read_ahead(bay, place, visits)
  end
  local lane = visits.lone_lanes[bay]
  local line = new_line(prefix .. 'bay:' .. bay, 2, 1)
  if lane then
    line.rows, line.more = { place .. lane, priority }, false
  end
  line.bay, line.need = bay, string.sub(bay, visits.need_at)
  enter_bay(line, visits)
end

-- Begin with the first open bays: with one, or with as many lone ones as come before everything else.
local function meet_bays(visits, common, wanted)
  local open, bound = visits.open, lone_bays.all_first(visits, common)
  local before = open.next
  lone_bays.take_first(visits, wanted, bound)
  if open.next == before then
    meet_bay(visits)
  end
end

-- Lanes whose first job has expired, also in closed bays: behind it may stand one that needs less.
local function meet_late(queue, visits)
  local late = redis.call(
    'ZRANGEBYSCORE', prefix .. 'lane_expiring:' .. queue, '-inf', now, 'LIMIT', 0, visits.expiries
  )
  for _, member in ipairs(late) do
    local lane = string.sub(member, PLACE + 1)
    local line = read_lane(lane)
    if line_head(line) == string.sub(member, 1, PLACE) then
      visits.in_hand[lane] = true
      push(visits.heap, line)
    end
  end
end

-- Choose jobs of a queue in order. Gates are charged, and `lone_bays.take_first` removes jobs from their lanes; nothing
-- else about the jobs is written.
-- The answer: chosen (with last and frees, see `choose`), expired (jobs), damaged, and cut_short if it stopped
-- at a bound.
local function visit(queue, wanted, expiries)
  local common = new_line(prefix .. 'ready:' .. queue, wanted, 0)
  local open = new_line(prefix .. 'open:' .. queue, wanted, 1)
  local heap = {} -- of bays with several lanes, and of lanes
  local visits = {
    chosen = {}, last = {}, frees = {}, expired = {}, damaged = {}, cut_short = false,
    expiries = expiries, left = wanted + EXTRA_VISITS, heap = heap, shut = {}, in_hand = {},
    closing = {}, queue = queue, asked = {}, kept = {}, common = {}, taken = {}, lanes = {},
    open = open, need_at = #lane_of(queue, '') + 1,
    lone = lone_bays.new(),
    lone_lanes = {}, -- by bay; false: it has a list
    last_open = { rows = false, priority = 0, due = 0, seq = 0, rank = 1 },
  }
  face(common)
  face(open)
  meet_late(queue, visits)
  while #visits.chosen < wanted and not visits.cut_short do
    local line = goes_before(open, common) and open or common
    if visits.lone.priority < NO_HEAD and goes_before(visits.lone, line) then
      lone_bays.merge(visits)
    end
    if heap[1] and goes_before(heap[1], line) then
      line = heap_pop(heap)
      if line.bay then
        enter_bay(line, visits)
      else
        visit_lane(line, visits, line)
      end
    elseif line.priority == NO_HEAD then
      break
    else
      if line == open then
        meet_bays(visits, common, wanted)
      else
        take_head(common, visits, common)
      end
      if #visits.chosen < wanted then
        face(line)
      end
    end
  end
  for bay, at in pairs(visits.closing) do
    bays.set(bay, at)
  end
  return visits
end
