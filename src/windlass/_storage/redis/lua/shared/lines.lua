-- Waiting: the lines of a queue, and what happens to a job in one of them.
-- use: jobs keys lanes ended hints flows

-- Waiting jobs that have spent an attempt since they were enqueued or requeued, by queue.
local retries = {}

function retries.add(job)
  if job.attempt > job.most - job.budget then
    redis.call('ZADD', prefix .. 'retrying:' .. job.queue, job.seq, job.id)
  end
end

function retries.drop(job)
  if job.attempt > job.most - job.budget then
    redis.call('ZREM', prefix .. 'retrying:' .. job.queue, job.id)
  end
end

-- --- when a new job is due: see storing.lua ---

local NEW_ASKS = '>Bi8i8B'

local function due_of(asks)
  local how, span = struct.unpack(NEW_ASKS, asks)
  if how == 1 then
    return after(now, span)
  end
  return how == 2 and math.min(span, LAST) or now
end

-- When it is not wanted any more; 0: it always is.
local function expiry_of(asks)
  local _, _, expires = struct.unpack(NEW_ASKS, asks)
  return expires < 0 and 0 or after(now, expires)
end

-- --- lines ---

-- The kind byte of a waiting job's place.
local function kind_of(job)
  if has(job.flags, SOLO) then
    return '3'
  elseif has(job.marks, LIMITED) then
    return '2'
  elseif job.kept or job.expires > 0 or has(job.marks, KEYED) then
    return '1'
  end
  return '0'
end

-- Due time of the first job of a queue that is not ready, or of the first that is not due yet; nil:
-- there is none.
local function first_due(queue, ahead)
  local later = prefix .. 'later:' .. queue
  local first = ahead
    and redis.call(
      'ZRANGEBYSCORE', later, string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1
    )
    or redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2])
end

-- Make the list of queues by due time follow the lines that changed.
local function settle_due()
  for queue in pairs(pending.due) do
    local due = first_due(queue)
    if due then
      redis.call('ZADD', prefix .. 'due', due, queue)
    else
      redis.call('ZREM', prefix .. 'due', queue)
    end
  end
  pending.due = nil
end

-- What every script does at its end, after its last change to a job: lanes, lists and counts follow.
local function settle()
  if not next(pending) then
    return
  end
  flows.write()
  open_freed()
  settle_lanes()
  settle_due()
  settle_ended()
  flush_counts()
  hints.flush()
end

-- A job whose limits cannot be read fails: its budgets are unknown.
local function fail_unreadable(job)
  local message = "The limits of this job's record cannot be read, so it was not run. "
    .. 'Its record is in the list of dead ones.'
  note_dead(job.id, 'its limits cannot be read', job.asked, job.kept)
  redis.call('HSET', prefix .. 'errors', job.id, cmsgpack.pack({ 'Damaged', message }))
  redis.call('HDEL', prefix .. 'tracebacks', job.id)
  redis.call('HDEL', prefix .. 'frames', job.id)
  retries.drop(job)
  count(job.queue, job.state, -1)
  count(job.queue, FAILED, 1)
  job.state, job.finished, job.tail = FAILED, now, ''
  mark(job, ERROR, true)
  mark(job, RESULT, false)
  mark(job, REASON, false)
  add_ended(job)
  members.ended(job, 'failed')
  redis.call('ZREM', prefix .. 'expiring', job.id)
  save_job(job)
  free_key_at_end(job)
end

-- Put a waiting job that is due into the line of the ready: the common one, its lane, or solo.
local function stand_ready(job)
  local kind = kind_of(job)
  if kind == '2' then
    local special = special_of(job)
    if not special or #special[4] == 0 then
      fail_unreadable(job)
    else
      enter_lane(job, special)
    end
    return
  end
  local line = (kind == '3' and 'solo:' or 'ready:') .. job.queue
  redis.call('ZADD', prefix .. line, job.priority, place_at(job.due, job.seq, job.id, kind))
  hints.add(job.queue, 1)
end

-- A waiting job joins the line it belongs to, by its due time.
local function join_line(job)
  retries.add(job)
  if job.expires > 0 then
    redis.call('ZADD', prefix .. 'expiring', job.expires, job.id)
  end
  if job.due <= now then
    stand_ready(job)
  else
    local place = place_at(job.due, job.seq, job.id, kind_of(job))
    redis.call(
      'ZADD', prefix .. 'later:' .. job.queue, job.due, place .. struct.pack('>d', job.priority)
    )
    pending.due[job.queue] = true
    hints.tell(job.queue)
  end
end

-- The job waits from now on, due at `due` or blocked, and is saved. The line it stood in and the counts are
-- the caller's.
local function stand(job, due)
  if job.finished > 0 then
    drop_ended(ended_as(job), job.queue, { job.id })
  end
  job.state, job.due, job.finished, job.tail = WAITING, due, 0, ''
  mark(job, RESULT, false)
  mark(job, REASON, false)
  save_job(job)
  if job.blocked then
    members.block(job)
  else
    join_line(job)
  end
end

-- An ended job waits again with a fresh budget, ready now; a member that is marked as blocked waits for its turn.
local function stand_again(job)
  count(job.queue, job.state, -1)
  count(job.queue, WAITING, 1)
  job.most = job.attempt + job.budget
  job.expires, job.lost = 0, 0
  misses.forget(job)
  mark(job, CANCEL, false)
  mark(job, SOLO, false)
  mark(job, SPENT, has(job.marks, STARTED))
  stand(job, job.blocked and job.due or now)
end

-- A waiting job leaves its line. A blocked one is in none: it is not blocked any more.
local function leave_line(job)
  if job.blocked then
    members.unblock(job)
    return
  end
  local kind = kind_of(job)
  local place = place_at(job.due, job.seq, job.id, kind)
  retries.drop(job)
  if job.expires > 0 then
    redis.call('ZREM', prefix .. 'expiring', job.id)
  end
  if kind == '2' then
    local special = special_of(job)
    if special and leave_lane(job, special) then
      return
    end
  elseif redis.call(
    'ZREM', prefix .. (kind == '3' and 'solo:' or 'ready:') .. job.queue, place
  ) == 1 then
    return
  end
  redis.call('ZREM', prefix .. 'later:' .. job.queue, place .. struct.pack('>d', job.priority))
  pending.due[job.queue] = true
end

-- A waiting job ends here, without a claim: cancelled or discarded, with a reason or ''. `how`: as what the
-- part of a member counts it, if that is not 'cancelled'.
local function end_waiting(job, state, reason, how)
  job.state, job.finished, job.tail = state, now, reason
  add_ended(job)
  leave_line(job)
  count(job.queue, WAITING, -1)
  count(job.queue, state, 1)
  members.ended(job, how or 'cancelled')
  mark(job, RESULT, false)
  mark(job, REASON, reason ~= '')
  save_job(job)
  free_key_at_end(job)
end

-- Which of these members of a later line were missed. The member does not say it: older
-- processes must find it.
function misses.among(members)
  if #members == 0 or redis.call('EXISTS', prefix .. 'missed') == 0 then
    return {}
  end
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = string.sub(member, 18, 33)
  end
  return read_all('HMGET', prefix .. 'missed', ids)
end

-- Make up to `most` due jobs of a queue ready, longest due first; those that were missed only if they
-- were due by `missed_until`. The answer is how many, and the due time of the first that was left.
local function promote(queue, most, missed_until)
  local later = prefix .. 'later:' .. queue
  local due = redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, most)
  local missed, members, left = misses.among(due), {}, nil
  for i, member in ipairs(due) do
    local at = missed[i] and place_order(member)
    if at and at > missed_until then
      left = left or at
    else
      members[#members + 1] = member
    end
  end
  local ready, solo = {}, {}
  for _, member in ipairs(members) do
    local place, kind = string.sub(member, 1, PLACE), string.sub(member, PLACE, PLACE)
    if kind == '2' then
      local id = string.sub(place, 18, 33)
      local job = load_job(id)
      if job then
        stand_ready(job)
      else
        bury_record(
          queue, id, 'its record cannot be read', redis.call('HGET', prefix .. 'jobs', id),
          redis.call('HGET', prefix .. 'state', id)
        )
        count(queue, WAITING, -1)
      end
    else
      local line = kind == '3' and solo or ready
      line[#line + 1] = struct.unpack('>d', member, PLACE + 1)
      line[#line + 1] = place
    end
  end
  if #ready > 0 then
    wide('ZADD', prefix .. 'ready:' .. queue, ready, 2)
    hints.add(queue, #ready / 2)
  end
  if #solo > 0 then
    wide('ZADD', prefix .. 'solo:' .. queue, solo, 2)
    hints.tell(queue)
  end
  if #members > 0 then
    wide('ZREM', later, members, 1)
    pending.due[queue] = true
  end
  return #members, left
end

-- Delete jobs together that have succeeded, with no key, limit or error. The caller removes them from
-- their lines and counts. `histories`: keys of those that were claimed before.
local function delete_plain(ids, histories)
  wide('HDEL', prefix .. 'jobs', ids, 1)
  wide('HDEL', prefix .. 'state', ids, 1)
  wide('ZREM', prefix .. 'all', ids, 1)
  for first = 1, #histories, 1000 do
    redis.call('UNLINK', unpack(histories, first, math.min(first + 999, #histories)))
  end
  -- Most stores have none of these.
  if redis.call('EXISTS', prefix .. 'progress') == 1 then
    wide('HDEL', prefix .. 'progress', ids, 1)
  end
  if redis.call('EXISTS', prefix .. 'metadata') == 1 then
    wide('HDEL', prefix .. 'metadata', ids, 1)
  end
  if redis.call('EXISTS', prefix .. 'odd') == 1 then
    wide('ZREM', prefix .. 'odd', ids, 1)
  end
  journal.forget(ids)
end

-- Delete a job of any state with everything stored about it. A waiting one must have
-- left its line, a running one its worker.
local function delete_job(job)
  count(job.queue, job.state, -1)
  free_key(job)
  redis.call('HDEL', prefix .. 'jobs', job.id)
  redis.call('ZREM', prefix .. 'all', job.id)
  if is_odd(job.id, job.created) then
    redis.call('ZREM', prefix .. 'odd', job.id)
  end
  if job.kept then
    redis.call('HDEL', prefix .. 'state', job.id)
  end
  if job.finished > 0 then
    drop_ended(ended_as(job), job.queue, { job.id })
  end
  if has(job.flags, THROTTLED) then
    redis.call('HDEL', prefix .. 'throttled', job.id)
  end
  misses.forget(job)
  if has(job.flags, ERROR) then
    redis.call('HDEL', prefix .. 'errors', job.id)
    redis.call('HDEL', prefix .. 'tracebacks', job.id)
    redis.call('HDEL', prefix .. 'frames', job.id)
  end
  journal.forget({ job.id })
  if job.number > 0 then
    redis.call('HDEL', prefix .. 'progress', job.id)
    redis.call('HDEL', prefix .. 'metadata', job.id)
    redis.call('DEL', prefix .. 'history:' .. job.id)
  end
end
