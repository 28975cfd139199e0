-- What becomes of the blocked jobs of parts that are due, and of the members of cancelled flows, in portions.
--
-- What is to be done is in `settle` (a sorted set), first things first: flows whose cancel has not reached all
-- members (a flow's id, at 0); parts that are due, by the number of their flow, then by their own; and flows that
-- expire ('x' and the id, at that instant), which a call looks for before it does anything else.
-- use: lines flows plain_members

local settling = {
  PARTS = 100, -- that one call settles at most
  READ_AT_ONCE = 500, -- parts
  LONE = 5, -- a job that is treated by itself is as much work as this many that are treated together
}

-- --- one part ---

function settling.reason(part, flow, how)
  if how == 'skipped' then
    return 'not needed'
  elseif flow.cancelled then
    return 'its flow was cancelled'
  end
  local _, _, after = unpack(cmsgpack.unpack(redis.call('HGET', prefix .. 'plans', part.key)))
  for _, edge in ipairs(after) do
    local key = flows.part_key(part.flow, edge[1])
    if edge[2] and has(flows.part(key).told, BROKEN) then
      local name = cmsgpack.unpack(redis.call('HGET', prefix .. 'plans', key))[1]
      return 'after ' .. name .. ', which failed'
    end
  end
  return 'what it waits for failed'
end

-- The asked record of a job that was never changed, from its turn on.
function settling.placed_record(job)
  return string.sub(job.asked, 1, 11) .. struct.pack('>i8', job.expires) .. string.sub(job.asked, 20, 29)
    .. struct.pack('>i8', job.due) .. string.sub(job.asked, 38, -22)
    .. members.pack(job.part, job.added, false)
end

-- Put jobs that are not blocked any more among the others. Delay and expiry count from now. Without a delay, or
-- if it has run before, a job is ordered by the start of its flow, which has waited that long.
function settling.place_all(jobs, flow)
  local asked, kept, ready, expiring = {}, {}, {}, {}
  for _, job in ipairs(jobs) do
    local asks = string.sub(job.asked, -39, -22)
    local at_once = job.attempt > 0 or string.byte(asks) == 0
    job.due = at_once and flow.created or due_of(asks)
    job.expires = expiry_of(asks)
    if job.kept then
      job.kept = state_record(job)
      kept[#kept + 1], kept[#kept + 2] = job.id, job.kept
    else
      job.asked = settling.placed_record(job)
      asked[#asked + 1], asked[#asked + 2] = job.id, job.asked
    end
    local kind = kind_of(job)
    if job.due <= now and (kind == '0' or kind == '1') then
      gather_scored(ready, job.queue, job.priority, place_at(job.due, job.seq, job.id, kind))
      hints.add(job.queue, 1)
      retries.add(job)
      if job.expires > 0 then
        expiring[#expiring + 1], expiring[#expiring + 2] = job.expires, job.id
      end
    else
      join_line(job)
    end
  end
  wide('HSET', prefix .. 'jobs', asked, 2)
  wide('HSET', prefix .. 'state', kept, 2)
  wide('ZADD', prefix .. 'expiring', expiring, 2)
  send('ZADD', ready, 2, prefix .. 'ready:')
end

function settling.blocked_ids(part, limit)
  return redis.call('ZRANGE', prefix .. 'blocked:' .. part.key, 0, limit - 1)
end

-- Some of the first blocked jobs are not blocked any more.
function settling.drop_blocked(part, first, some)
  local line = prefix .. 'blocked:' .. part.key
  if #some == #first then
    redis.call('ZREMRANGEBYRANK', line, 0, #first - 1)
  else
    wide('ZREM', line, some, 1)
  end
  members.count(part.key, 'blocked', -#some)
end

-- The blocked jobs with these ids; those that cannot be read have failed.
function settling.blocked_jobs(part, ids)
  local jobs = {}
  for i, job in ipairs(load_jobs(ids)) do
    if job and job.blocked then
      jobs[#jobs + 1] = job
    else
      redis.call('ZREM', prefix .. 'blocked:' .. part.key, ids[i])
      members.count(part.key, 'blocked', -1)
      if not job then
        members.count(part.key, 'failed', 1)
        members.count(part.key, 'open', -1)
      end
    end
  end
  return jobs
end

function settling.open_part(part, flow, limit)
  local ids = settling.blocked_ids(part, limit)
  local placed, others = plain_members.place(ids, flow)
  local jobs = settling.blocked_jobs(part, others)
  for _, job in ipairs(jobs) do
    placed[#placed + 1], job.blocked = job.id, false
    members.count_blocked(job.queue, -1)
  end
  settling.place_all(jobs, flow)
  settling.drop_blocked(part, ids, placed)
  return #ids
end

function settling.end_part(part, flow, how, limit)
  local ids = settling.blocked_ids(part, limit)
  local reason = settling.reason(part, flow, how)
  local ended, others = plain_members.finish(part, ids, how, reason)
  settling.drop_blocked(part, ids, ended)
  members.count(part.key, how, #ended)
  members.count(part.key, 'open', -#ended)
  for _, job in ipairs(settling.blocked_jobs(part, others)) do
    end_waiting(job, how == 'stopped' and CANCELLED or DISCARDED, reason, how)
  end
  return #ids
end

-- A job that was stopped or skipped waits for other parts again. If its key was taken meanwhile, it stays
-- ended, as a failure of its own.
function settling.block_again(job, how)
  members.count(job.part, how, -1)
  local special = has(job.marks, KEYED) and special_of(job)
  local holder = special and key_holder(special[1])
  if holder and holder ~= job.id then
    local name = string.gsub(holder, '.', function(byte)
      return string.format('%02x', string.byte(byte))
    end)
    job.tail = 'its key is held by job ' .. name
    mark(job, REASON, true)
    save_job(job)
    members.count(job.part, 'cancelled', 1)
    return
  end
  if special and not holder then
    take_key(job.id, special[1], special[3])
  end
  members.count(job.part, 'open', 1)
  job.blocked = true
  stand_again(job)
end

function settling.block_part_again(part, ends, limit)
  local done = 0
  for _, how in ipairs(ends) do
    local ids = done < limit
      and redis.call('ZRANGE', prefix .. how .. ':' .. part.key, 0, limit - done - 1) or {}
    for i, job in ipairs(load_jobs(ids)) do
      if job then
        settling.block_again(job, how)
      else
        members.count(part.key, how, -1)
        members.count(part.key, 'failed', 1)
      end
    end
    wide('ZREM', prefix .. how .. ':' .. part.key, ids, 1)
    done = done + #ids
  end
  return done
end

-- Do what the part's numbers say with its jobs, as much as `limit` allows. The answer: how many jobs, and how much
-- work that was.
function settling.part(part, limit)
  local flow = flows.get(part.flow)
  local decision, done = parts.decide(part, flow.cancelled), 0
  local ends = parts.coming_back(part, decision)
  if #ends > 0 then
    done = settling.block_part_again(part, ends, settling.few(limit))
    return done, done * settling.LONE
  elseif decision == 'open' then
    done = settling.open_part(part, flow, limit)
  elseif decision ~= 'wait' then
    done = settling.end_part(part, flow, decision == 'stop' and 'stopped' or 'skipped', limit)
  end
  return done, done
end

-- Let a retried flow run from this call on: block at least one of its members again. None is if others hold
-- the keys of all of them.
function settling.reopen(flow)
  if flow.state == flows.RUNNING then
    return -- most
  end
  for _, part in ipairs(flows.in_order(flow)) do
    local done = 1
    while flow.state ~= flows.RUNNING and part.due == 1 and done > 0 do
      done = settling.part(part, 100)
      members.flush()
      flows.look(part)
    end
  end
end

-- --- cancelled flows ---

-- Mark a flow. Its members follow in portions.
function settling.cancel(flow)
  flow.cancelled, flow.swept, flow.swept_to, flow.retried = true, 0, 0, false
  redis.call('SREM', prefix .. 'flows_retried', flow.id)
  redis.call('ZADD', prefix .. 'settle', 0, flow.id)
  if flow.sealed then
    flows.free_key(flow) -- it never runs
  end
  flows.expect_expiry(flow)
  flows.save(flow)
  for _, part in ipairs(flows.all_parts(flow)) do
    flows.spread(part)
  end
end

-- Cancel members that wait, and ask the workers of running ones; how many were looked at. `limit`: of them, and of
-- parts several times as many.
function settling.sweep(flow, limit)
  local looked, asked, last = 0, false, math.min(flow.size, flow.swept + limit * settling.LONE)
  while flow.swept < last and looked < limit do
    local key = flows.part_key(flow.id, flow.swept)
    local some = flows.part(key).kind == parts.JOBS and redis.call(
      'ZRANGEBYSCORE', prefix .. 'members:' .. key, '(' .. string.format('%.0f', flow.swept_to), '+inf',
      'LIMIT', 0, limit - looked
    ) or {}
    for _, member in ipairs(some) do
      local job = load_job(string.sub(member, 1, 16))
      if job and job.state == RUNNING then
        mark(job, CANCEL, true)
        save_job(job)
        asked = true
      elseif job and job.state == WAITING and not job.blocked then
        end_waiting(job, CANCELLED, '')
      end
      flow.swept_to = job and job.seq or flow.swept_to
    end
    looked = looked + #some
    if looked < limit then
      flow.swept, flow.swept_to = flow.swept + 1, 0
    end
  end
  if flow.swept == flow.size then
    redis.call('ZREM', prefix .. 'settle', flow.id)
  end
  flows.save(flow)
  if asked then
    notify('cancel')
  end
  return math.max(looked, 1)
end

-- --- all of them ---

-- Cancel up to `limit` flows that have expired: their parts are settled as those of cancelled flows.
function settling.cancel_late(limit)
  local some = redis.call(
    'ZRANGEBYSCORE', prefix .. 'settle', flows.FIRST_INSTANT, now, 'LIMIT', 0, limit
  )
  for _, late in ipairs(some) do
    local flow = flows.get(string.sub(late, 2))
    if flow then
      settling.cancel(flow)
    else
      redis.call('ZREM', prefix .. 'settle', late)
    end
  end
  members.flush()
end

-- Do one of these things, as much as `limit` allows. The answer: how many jobs, and how much work that was.
function settling.settle_one(first, limit)
  local flow = flows.get(string.sub(first, 1, 16))
  if not flow then
    redis.call('ZREM', prefix .. 'settle', first)
    return 0, 0
  elseif #first == 16 then
    local swept = settling.sweep(flow, settling.few(limit))
    return swept, swept * settling.LONE
  end
  local part = flows.part(first)
  local done, work = settling.part(part, limit)
  members.flush()
  flows.look(part)
  if done == 0 then
    part.due = 0 -- its counts are wrong: not again, before they are put right
  end
  return done, work
end

-- How many jobs that are treated one by one are this much work.
function settling.few(limit)
  return math.ceil(limit / settling.LONE)
end

-- Up to two of the parts that this call has changed and that are due.
function settling.due_here()
  local due = {}
  for key, part in pairs(pending.parts) do
    if part.due == 1 and #due < 2 then
      due[#due + 1] = key
    end
  end
  return due
end

-- Whether this call has made parts due.
function settling.is_new()
  for _, part in pairs(pending.parts) do
    if part.due > part.listed then
      return true
    end
  end
  return false
end

-- The first of what is to be done, or nil, and whether `settle` has something. Most parts are settled whole by the
-- call that makes them due: a lone one is not listed first.
function settling.first(listed)
  if not listed then
    local due = settling.due_here()
    if #due < 2 then
      return due[1], false
    end
  end
  flows.list_due()
  local first = redis.call('ZRANGEBYSCORE', prefix .. 'settle', '-inf', now, 'LIMIT', 0, 1)[1]
  local flow = first and #first == 20 and flows.get(string.sub(first, 1, 16))
  return flow and flow.grown and settling.first_part(flow) or first, true
end

-- Of the parts of a grown flow that are to be settled, the first in the order of the graph: it begins with the flow
-- that a job added last. `settle` has them by their numbers. Few are read, because a flow may have thousands.
function settling.first_part(flow)
  local settle = prefix .. 'settle'
  local low = redis.call('ZCOUNT', settle, '-inf', '(' .. string.format('%.0f', flow.number))
  local high = low + redis.call('ZCOUNT', settle, flow.number, flow.number) - 1
  local last = not cache.without_added[flow.id] and settling.last_added(low, high)
  if not last then
    cache.without_added[flow.id] = true
    return settling.first_drawn(low, high)
  end
  local from, to = low, last.at
  while from < to do
    local middle = math.floor((from + to) / 2)
    local key = redis.call('ZRANGE', settle, middle, middle)[1]
    if struct.unpack('>I4', key, 17) < last.first then
      from = middle + 1
    else
      to = middle
    end
  end
  return redis.call('ZRANGE', settle, from, from)[1]
end

-- Of these places of `settle`, the last one of a part that a job added: the place, and the number of the first part
-- that was added with it. Nil: there is none.
function settling.last_added(low, high)
  while high >= low do
    local from = math.max(low, high - settling.READ_AT_ONCE + 1)
    local keys = redis.call('ZRANGE', prefix .. 'settle', from, high)
    local stored = redis.call('HMGET', prefix .. 'parts', unpack(keys))
    for i = #keys, 1, -1 do
      local first = flows.glance_first(keys[i], stored[i])
      if first > 0 then
        return { at = from + i - 1, first = first }
      end
    end
    high = from - 1
  end
end

-- Of these places of `settle`, which no part has that a job added, the part to be settled first: callbacks are last.
function settling.first_drawn(low, high)
  for at = low, high do
    local key = redis.call('ZRANGE', prefix .. 'settle', at, at)[1]
    if flows.part(key).kind ~= parts.CALLBACK then
      return key
    end
  end
  return redis.call('ZRANGE', prefix .. 'settle', low, low)[1]
end

-- Settle jobs. `limit`: how much work, in jobs that are treated together; it keeps a call short, because others wait
-- meanwhile. The answer: how many jobs, and how much work that was. `settle` follows, and `wake`.
function settling.run(limit)
  local listed = redis.call('EXISTS', prefix .. 'settle') == 1
  if listed then
    settling.cancel_late(settling.few(limit))
  elseif not rawget(pending, 'parts') then
    return 0, 0 -- most calls
  end
  local done, spent, first = 0, 0, nil
  while spent < limit do
    first, listed = settling.first(listed)
    if not first or #first == 17 then
      break -- nothing, or a flow that has expired: the next call cancels it
    end
    local some, work = settling.settle_one(first, limit - spent)
    done = done + some
    spent = spent + (some > 0 and math.max(work, math.ceil(limit / settling.PARTS)) or 0)
    members.flush()
  end
  return done, spent
end
