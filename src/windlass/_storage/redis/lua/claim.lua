-- JobStore.claim.
-- ARGV: worker, total, '1' for a solo claim or '', how long jobs that were missed are left to others
-- after they are due, then queue and limit of each want.
-- Answer: now, 1 if the worker is live, next_at or -1, 1 if solo_due, the ids of expired jobs and those
-- of jobs that could not be read (each one string), a list with the place among the claimed, the state
-- record and the error of those that have a state record from before; then all asked records.
-- use: visits brakes mending hints settling

local PROMOTED = 500 -- due jobs of one queue made ready, and bays whose tokens are there
local EXPIRIES = 500 -- expired jobs that one claim discards
local SETTLED = 200 -- members of flows that one claim settles, or as many as it may start
local SOLO_LOOKS = 64 -- solo jobs that a claim asks the limits for
local BEFORE = 7 -- values in the answer before the first asked record

-- What one claim is given, and what it finds.
local worker, room, alone, head_start
local answer, ids, states, earlier, expired, damaged
local expiries, next_at
local cancels -- whether members of cancelled flows were ended
local laned, with_solo -- queues
local left -- by queue, how many jobs may be left for others to claim

-- What the state records of jobs that start for the first time have in common: all but the part that
-- is copied from what was asked.
local plain_front, plain_back

-- Something may become claimable at this instant.
local function expect(at)
  if at and (not next_at or at < next_at) then
    next_at = at
  end
end

-- --- writing ---

-- A job that cannot be read is put aside; the next claim finds the jobs behind it.
local function put_aside(queue, id, reason, asked, kept)
  bury_record(queue, id, reason, asked, kept)
  count(queue, WAITING, -1)
  damaged[#damaged + 1] = id
  expect(now)
end

-- A waiting job that must not start: it has expired, or its flow was cancelled.
local function discard(job)
  if members.is_stopped(job.asked) then
    end_waiting(load_job(job.id), CANCELLED, '')
    cancels = true
  else
    end_waiting(job, DISCARDED, 'expired')
    expired[#expired + 1] = job.id
  end
  expiries = expiries - 1
end

local function add_claim(id, asked, record)
  answer[#answer + 1] = asked
  ids[#ids + 1] = id
  states[#states + 1] = id
  states[#states + 1] = record
end

-- Start a job that has left its line.
local function start(job)
  if job.expires > 0 then
    redis.call('ZREM', prefix .. 'expiring', job.id)
  end
  if job.kept then
    local said = has(job.flags, ERROR) and redis.call('HGET', prefix .. 'errors', job.id)
    local n = #earlier
    earlier[n + 1], earlier[n + 2], earlier[n + 3] = #ids, job.kept, said or ''
    redis.call('HDEL', prefix .. 'progress', job.id)
  end
  if has(job.marks, STARTED) then
    free_key(job)
  end
  job.state, job.worker, job.started = RUNNING, worker, now
  job.number, job.attempt, job.tail = job.number + 1, job.attempt + 1, ''
  mark(job, CANCEL, false)
  mark(job, FREES, job.marks % 4 > 0)
  mark(job, REASON, false)
  add_claim(job.id, job.asked, state_record(job))
end

-- Start the jobs that a visit has chosen, which have left their lines.
local function start_all(visits)
  local byte, sub, in_flow, asked_of = string.byte, string.sub, members.RECORD, visits.asked
  local limited_front = string.char(RUNNING, FREES)
  plain_front = plain_front or string.char(RUNNING, 0)
  plain_back = plain_back
    or struct.pack(BACK, 1, 1, 0, now, 0, 0, 0, 0, 0, #worker, worker, 0, '')
  for i, job in ipairs(visits.chosen) do
    local last = visits.last[i]
    if last then
      local n, asked = #ids + 1, asked_of[job]
      local front, membership = visits.frees[i] and limited_front or plain_front, ''
      if byte(asked) == in_flow then
        membership = sub(asked, -21)
      end
      ids[n], answer[BEFORE + n], states[2 * n - 1] = job, asked, job
      states[2 * n] = front .. sub(asked, 20, last) .. membership .. plain_back
    else
      start(job)
    end
  end
end

-- --- three ways to take ---

-- Start jobs that were never changed and that carry nothing special: most.
local function start_plain(queue, fresh, asked)
  local byte, sub, size, in_flow = string.byte, string.sub, 51 + #queue, members.RECORD
  local n, records, all = #ids, #answer, #states
  plain_front = plain_front or string.char(RUNNING, 0)
  plain_back = plain_back
    or struct.pack(BACK, 1, 1, 0, now, 0, 0, 0, 0, 0, #worker, worker, 0, '')
  local its_membership, stopped -- of the member before: most are of the same part
  for i = 1, #fresh do
    local id, record = fresh[i], asked[i]
    local high, low, last
    if record then
      high, low = byte(record, size, size + 1)
      last = low and size + 1 + high * 256 + low
    end
    if not low or sub(record, last + 14, last + 29) ~= id then
      put_aside(queue, id, 'its record cannot be read', record, false)
    elseif byte(record) ~= in_flow then
      n, records, all = n + 1, records + 1, all + 2
      ids[n], answer[records] = id, record
      states[all - 1], states[all] = id, plain_front .. sub(record, 20, last) .. plain_back
    else
      local membership = sub(record, -21)
      if membership ~= its_membership then
        its_membership, stopped = membership, members.is_stopped(record)
      end
      if stopped then
        discard({ id = id, asked = record })
      else
        n, records, all = n + 1, records + 1, all + 2
        ids[n], answer[records] = id, record
        states[all - 1] = id
        states[all] = plain_front .. sub(record, 20, last) .. membership .. plain_back
      end
    end
  end
end

-- Start or discard a job that has left the common line.
local function take_closer(queue, id)
  local asked = redis.call('HGET', prefix .. 'jobs', id)
  local kept = redis.call('HGET', prefix .. 'state', id)
  local job, reason = parse_job(id, asked, kept)
  if not job then
    put_aside(queue, id, reason, asked, kept)
  elseif job.state ~= WAITING then
    return -- an older Windlass ended it, and did not find the place of a job that was missed
  elseif job.expires > 0 and job.expires <= now or members.is_stopped(asked) then
    discard(job)
  else
    retries.drop(job)
    start(job)
  end
end

-- Where there are no lanes. What is taken from the line is claimed, discarded or put aside, so the
-- bound on what may be discarded bounds what is taken.
local function take_best(queue, wanted)
  local ready, before = prefix .. 'ready:' .. queue, #ids
  while #ids - before < wanted and expiries > 0 do
    -- Cheaper than ZPOPMIN, which answers with the priorities, too.
    local last = math.min(wanted - #ids + before, expiries) - 1
    local places = redis.call('ZRANGE', ready, 0, last)
    if #places == 0 then
      return
    end
    redis.call('ZREMRANGEBYRANK', ready, 0, last)
    local fresh, n = {}, 0
    local function flush()
      if n > 0 then
        start_plain(queue, fresh, redis.call('HMGET', prefix .. 'jobs', unpack(fresh)))
        fresh, n = {}, 0
      end
    end
    local sub, byte = string.sub, string.byte
    for i = 1, #places do
      local place = places[i]
      if byte(place, PLACE) == 48 then
        n = n + 1
        fresh[n] = sub(place, 18, 33)
      else
        flush()
        take_closer(queue, sub(place, 18, 33))
      end
    end
    flush()
  end
  if #ids - before < wanted then
    expect(now)
  end
end

-- How many jobs of a queue others could claim now.
local function left_in(queue)
  if queue_room(queue) == 0 then
    return 0
  end
  return redis.call('ZCARD', prefix .. 'ready:' .. queue)
    + redis.call('ZCARD', prefix .. 'open:' .. queue)
end

-- Merge the jobs without limits with the lanes, discard what has expired.
local function take_by_visits(queue, wanted)
  mend_gates()
  open_timed(queue, PROMOTED)
  local visits = visit(queue, wanted, expiries)
  for _, job in ipairs(visits.expired) do
    discard(job)
  end
  for _, lost in ipairs(visits.damaged) do
    leave_unread(queue, lost)
    put_aside(queue, lost.id, lost.reason, lost.asked, lost.kept)
  end
  leave_lines(queue, visits)
  start_all(visits)
  settle_lanes()
  postpone(write_gates())
  if visits.cut_short then
    expect(now)
  end
end

-- The first solo job that its limits admit, or nil. A refused one closes its lane behind it.
local function next_solo(queue, clearing)
  local closed, found, late = {}, nil, {}
  local places = redis.call('ZRANGE', prefix .. 'solo:' .. queue, 0, SOLO_LOOKS - 1)
  for _, place in ipairs(places) do
    local id = string.sub(place, 18, 33)
    local job = load_job(id)
    local special = job and special_of(job)
    if not special then
      late[#late + 1] = { false, id, place }
    elseif clearing and (job.expires > 0 and job.expires <= now or members.is_stopped(job.asked)) then
      late[#late + 1] = { job }
    elseif not closed[special[5]] then
      local gate, _, at = shut(special)
      if not gate then
        found = job
        break
      end
      closed[special[5]] = true
      expect(at)
    end
  end
  if clearing then
    for _, entry in ipairs(late) do
      if entry[1] then
        discard(entry[1])
      else
        redis.call('ZREM', prefix .. 'solo:' .. queue, entry[3])
        put_aside(
          queue, entry[2], 'its record cannot be read',
          redis.call('HGET', prefix .. 'jobs', entry[2]),
          redis.call('HGET', prefix .. 'state', entry[2])
        )
      end
    end
  end
  return found
end

local function take_solo(queue)
  local job = next_solo(queue, true)
  if job then
    redis.call('SADD', prefix .. 'holders', worker)
    charge(special_of(job), job.id)
    leave_line(job)
    start(job)
    postpone(write_gates())
    count(queue, WAITING, -1)
    count(queue, RUNNING, 1)
    room = room - 1
  end
end

-- --- the wants, in order ---

local function serve(queue, limit)
  if is_idle(queue) or redis.call('SISMEMBER', prefix .. 'paused', queue) == 1 then
    return
  end
  local due = first_due(queue)
  if due and due <= now then
    local many, left = promote(queue, PROMOTED, now - head_start)
    settle_lanes()
    due = first_due(queue)
    if left and many < PROMOTED then
      due = math.min(left + head_start, first_due(queue, true) or left + head_start)
    end
  end
  if cooling_until(queue) then
    mend_gates()
  end
  local rests, may_start = cooling_until(queue), queue_room(queue)
  expect(rests or due)
  if may_start == 0 then
    return
  end
  local has_lanes = redis.call('EXISTS', prefix .. 'bays:' .. queue) == 1
  local has_solo = redis.call('EXISTS', prefix .. 'solo:' .. queue) == 1
  local wanted, before = math.max(0, math.min(limit, room, may_start or limit)), #ids
  if alone then
    if has_solo and wanted > 0 then
      take_solo(queue)
    end
    return
  end
  if wanted > 0 and (has_lanes or redis.call('EXISTS', prefix .. 'ready:' .. queue) == 1) then
    -- The first write is one that a full server refuses: nothing is taken from a line then.
    redis.call('SADD', prefix .. 'holders', worker)
    if has_lanes then
      take_by_visits(queue, wanted)
    else
      take_best(queue, wanted)
    end
    room = room - (#ids - before)
    count(queue, WAITING, before - #ids)
    count(queue, RUNNING, #ids - before)
  end
  if has_lanes then
    laned[#laned + 1] = queue
  end
  if has_solo then
    with_solo[#with_solo + 1] = queue
  end
  -- A claim that got less than it wanted has taken all there was, unless it had to discard too many.
  local all_taken = #ids - before < wanted and expiries > 0 and not has_lanes
  left[queue] = all_taken and 0 or left_in(queue)
end

-- --- run ---

if newer then
  return redis.error_reply('WINDLASSLAYOUT ' .. newer .. ' is the stored layout')
end
worker, room, alone, head_start = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4])
if not redis.call('ZSCORE', prefix .. 'live', worker) then
  return { now, 0, -1, 0, '', '', {} }
end
if alone then
  room = math.min(room, 1)
end
answer = { now, 1, -1, 0, '', '', {} }
ids, states, earlier, expired, damaged = {}, {}, {}, {}, {}
expiries, next_at, cancels, plain_back = EXPIRIES, nil, false, nil
laned, with_solo, left = {}, {}, {}

local settled = settling.run(math.max(SETTLED, room))
if settled > 0 then
  settle_lanes() -- for this claim to find those with limits
end
for i = 5, #ARGV, 2 do
  serve(ARGV[i], tonumber(ARGV[i + 1]))
end
if #ids > 0 then
  wide('HSET', prefix .. 'state', states, 2)
  wide('SADD', prefix .. 'running:' .. worker, ids, 1)
end
for queue, number in pairs(left) do
  hints.leave(queue, number)
end
settle()

-- What comes next, now that every queue has taken from the gates what it wanted.
for _, queue in ipairs(laned) do
  local first = redis.call('ZRANGE', prefix .. 'timed:' .. queue, 0, 0, 'WITHSCORES')
  expect(first[2] and tonumber(first[2]))
end
for _, queue in ipairs(with_solo) do
  if queue_room(queue) ~= 0 and next_solo(queue, false) then
    answer[4] = 1
    hints.leave(queue, math.max(1, left[queue])) -- another worker may run nothing else
    hints.flush()
  end
end
if #expired > 0 or #damaged > 0 or cancels or settled > 0 then
  wake()
end
answer[3] = next_at or -1
answer[5], answer[6], answer[7] = table.concat(expired), table.concat(damaged), earlier
return answer
