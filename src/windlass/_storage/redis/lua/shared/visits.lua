-- A claim on a queue with lanes: the common line and the open bays, merged by their heads.
-- use: jobs keys gates lanes lines merging

local EXTRA_VISITS = 64 -- lanes that one claim may look at in vain
local ENDLESS = '\0\0\0\0\0\0\0\0' -- the expiry of most jobs, as it is stored
local MINUS = 45 -- the need of a bay begins with it where what is missing is a unit
local UNCHANGED = 48 -- the kind byte of jobs that have no state record
local FIRST_AHEAD, MOST_AHEAD = 8, 256 -- records that are read together

local lone_bays = {} -- functions of one table, because one chunk has 200 locals at most

-- --- taking jobs ---

-- A job that cannot be read leaves the line it was met in.
local function leave_unread(queue, lost)
  redis.call('ZREM', lost.key, lost.place)
  if lost.lane then
    pending.touched[lost.lane] = pending.touched[lost.lane] or ''
  end
end

-- Read the records of a job and of those behind it in a line, whose members begin with places.
local function read_ahead(line, place, visits)
  local sub, byte, rows = string.sub, string.byte, line.rows
  local ids, changed, n = { sub(place, 18, 33) }, {}, 1
  if byte(place, PLACE) ~= UNCHANGED then
    changed[1] = ids[1]
  end
  line.ahead = math.max(FIRST_AHEAD, math.min(2 * (line.ahead or 0), MOST_AHEAD))
  for at = line.next, math.min(#rows, line.next + 2 * line.ahead - 2), 2 do
    n = n + 1
    ids[n] = sub(rows[at], 18, 33)
    if byte(rows[at], PLACE) ~= UNCHANGED then
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
end

-- What a job that was never changed asks for, and the last byte of what a claim copies; nil if something must be
-- done for it at its start, or if it cannot be read.
local function glance_fresh(id, asked)
  if string.sub(asked, 12, 19) == ENDLESS
    and (string.byte(asked) ~= members.RECORD or not members.is_stopped(asked)) then
    local marks, special, last = glance_asked(id, asked)
    if marks and marks < STARTED and special ~= false then
      return special, last
    end
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
end

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

-- The lanes that `lone_bays.take` has taken from are merged with the others from now on: one of their next jobs is
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

-- Note the next job of a lane that `lone_bays.take` has taken from. Most often it comes after all this claim wants.
function lone_bays.wait(lone, place, priority)
  priority = tonumber(priority)
  if priority <= lone.priority then
    local due, seq = place_order(place)
    if precedes(priority, due, seq, lone.priority, lone.due, lone.seq) then
      lone.priority, lone.due, lone.seq = priority, due, seq
    end
  end
end

-- Take the first job of the only lane of an open bay, whose member in the list of open bays is given. The job
-- leaves its lane before that line is first read. False: nothing is done, and the lane must be visited.
function lone_bays.take(bay, lane, member, place, visits)
  local id = string.sub(member, 18, 33)
  local asked = visits.asked[id]
  if not asked or visits.kept[id] or visits.left == 0 or visits.in_hand[lane] then
    return false
  end
  local special, last = glance_fresh(id, asked)
  if not special or #special[4] == 0 or shut(special) then
    return false
  end
  local key = prefix .. 'lane:' .. lane
  if redis.call('ZREM', key, place) == 0 then
    return false
  end
  visits.left = visits.left - 1
  charge(special, id)
  local lone, n, m = visits.lone, #visits.chosen + 1, #visits.lone.lanes + 1
  visits.chosen[n], visits.last[n], visits.frees[n] = id, last, true
  local rows = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  lone.lanes[m], lone.bays[m], lone.members[m], lone.rows[m] = lane, bay, member, rows
  if rows[1] then
    lone_bays.wait(lone, rows[1], rows[2])
  end
  return true
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

-- Begin with the first open bay. Most have one lane that waits for a unit, and need no line.
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
  if lane and string.byte(bay, visits.need_at) == MINUS
    and lone_bays.take(bay, lane, member, place, visits) then
    return
  end
  local line = new_line(prefix .. 'bay:' .. bay, 2, 1)
  if lane then
    line.rows, line.more = { place .. lane, priority }, false
  end
  line.bay, line.need = bay, string.sub(bay, visits.need_at)
  enter_bay(line, visits)
end

-- Begin with the first open bays: as many as come before everything else for sure.
local function meet_bays(visits, common, wanted)
  local last, top, open = lone_bays.all_first(visits, common), visits.heap[1], visits.open
  repeat
    meet_bay(visits)
  until not last or not open.rows[open.next] or #visits.chosen == wanted or visits.cut_short
    or visits.heap[1] ~= top or not goes_before(last, visits.lone)
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

-- Choose jobs of a queue in order. Gates are charged, and `lone_bays.take` removes jobs from their lanes; nothing
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
    -- Of lanes that `lone_bays.take` has taken from: their names, bays, members in the list of open bays, next rows,
    -- and lines, of those that are merged. Then the order of the first that is not merged.
    lone = {
      lanes = {}, bays = {}, members = {}, rows = {}, lines = {}, merged = 0, priority = NO_HEAD, due = 0, seq = 0,
    },
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
