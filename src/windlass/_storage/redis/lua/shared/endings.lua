-- Ending claims: the fence, the cancel request, and everything that follows.
--
-- A transition is {id, number, seq, verb, if_cancelled, by, delay, refund, result, error, traceback,
-- lost, solo, missed, keep, cools, drains, then, frame, started, metadata, flows}. Verbs are the numbers of layout.py;
-- if_cancelled is -1 for none; error is msgpack [kind, message] or '', result a string or false. The
-- last seven may be left out; metadata is JSON or ''; cools is a list of durations, then the two strings
-- of each new job, one after the other, or false; flows is a list of flows, each as new_flows.lua says, or false.
-- use: jobs keys lanes lines ended brakes storing rollups new_flows

local SUCCEED, RETRY, SNOOZE, THROTTLE, RELEASE, FAIL, CANCEL_VERB = 1, 2, 3, 4, 5, 6, 7
local ENDS = { [SUCCEED] = SUCCEEDED, [FAIL] = FAILED, [CANCEL_VERB] = CANCELLED }

-- Answers are one character: applied and repeated ones say the verb that took effect.

local function applied(verb)
  return string.char(65 + verb)
end

local function repeated(verb)
  return string.char(97 + verb)
end

local ending = {} -- functions of one table, because one chunk has 200 locals at most

-- A job is not this worker's any more. `settle_workers` forgets workers that hold nothing.
local function drop_claim(worker, id)
  redis.call('SREM', prefix .. 'running:' .. worker, id)
  pending.idle[worker] = true
end

-- Workers that are not live and hold nothing are ignored.
function ending.settle_workers()
  for worker in pairs(pending.idle) do
    if redis.call('EXISTS', prefix .. 'running:' .. worker) == 0
      and not redis.call('ZSCORE', prefix .. 'live', worker) then
      redis.call('SREM', prefix .. 'holders', worker)
    end
  end
  pending.idle = nil
end

-- Every claim that did not succeed stays in the history.
function ending.remember(job, verb, transition)
  local error, metadata = transition[10], transition[21] or ''
  local noted = metadata ~= ''
  local entry = struct.pack(
    '>I4I4Bi8i8I4c0Hc0', job.number, job.attempt, verb + (noted and 128 or 0), job.started, now, #error,
    error, #job.worker, job.worker
  ) .. (noted and struct.pack('>Hc0', #metadata, metadata) or '') .. transition[11]
  local history = prefix .. 'history:' .. job.id
  redis.call('RPUSH', history, entry)
  -- Snoozes and their like push no error out: 32 with an error, 8 without.
  local most = error == '' and 8 or 32
  if job.number > most then
    local first, many = nil, 0
    for _, past in ipairs(redis.call('LRANGE', history, 0, -1)) do
      if (struct.unpack('>I4', past, 26) == 0) == (error == '') then
        first, many = first or past, many + 1
      end
    end
    if many > most then
      redis.call('LREM', history, 1, first)
    end
  end
end

-- The last error: the transition's, or none after a success.
function ending.keep_error(job, verb, transition)
  if verb == SUCCEED then
    if has(job.flags, ERROR) then
      redis.call('HDEL', prefix .. 'errors', job.id)
      redis.call('HDEL', prefix .. 'tracebacks', job.id)
      redis.call('HDEL', prefix .. 'frames', job.id)
      mark(job, ERROR, false)
    end
  elseif transition[10] ~= '' then
    redis.call('HSET', prefix .. 'errors', job.id, transition[10])
    if transition[11] ~= '' then
      redis.call('HSET', prefix .. 'tracebacks', job.id, transition[11])
    else
      redis.call('HDEL', prefix .. 'tracebacks', job.id)
    end
    if (transition[19] or '') ~= '' then
      redis.call('HSET', prefix .. 'frames', job.id, transition[19])
    else
      redis.call('HDEL', prefix .. 'frames', job.id)
    end
    mark(job, ERROR, true)
  end
end

-- What the handler noted, with the number of its claim: what an earlier one noted counts no more.
function ending.keep_metadata(job, transition)
  local metadata = transition[21] or ''
  if metadata ~= '' then
    redis.call('HSET', prefix .. 'metadata', job.id, struct.pack('>I4', job.number) .. metadata)
  end
end

-- Why this worker could not run it.
function misses.keep_why(job, transition)
  local fine, said = pcall(cmsgpack.unpack, transition[10])
  local why = fine and type(said) == 'table' and said[2] or ''
  redis.call('HSET', prefix .. 'missed', job.id, why)
end

-- The job ends with its claim.
function ending.finish(job, verb, transition)
  job.state, job.finished, job.tail = ENDS[verb], now, ''
  mark(job, RESULT, false)
  mark(job, REASON, false)
  if verb == SUCCEED and transition[9] then
    job.tail = transition[9]
    mark(job, RESULT, true)
  end
  count(job.queue, job.state, 1)
  members.ended(job, members.ended_as(job.state))
  if transition[15] or job.part then
    add_ended(job)
    save_job(job)
    free_key_at_end(job)
  else
    job.finished = 0 -- it is not among the ended ones
    delete_job(job)
  end
end

-- Add the strings of the new jobs that a transition brings.
function ending.add_jobs(items, transition)
  local many = #items
  for i, item in ipairs(transition[18]) do
    items[many + i] = item
  end
end

-- These jobs were to follow, and are not stored.
function ending.leave_out(ids)
  for _, id in ipairs(ids) do
    pending.left_out[#pending.left_out + 1] = id
  end
end

-- New jobs follow an end. What a member adds by its success belongs to its part; in a cancelled flow
-- nothing is added.
function ending.follow(job, verb, transition)
  local joins = job.part and verb == SUCCEED
  if joins and members.are_stopped(job.part) then
    local items = {}
    ending.add_jobs(items, transition)
    ending.leave_out(read_new(items).ids)
    return
  end
  local before = #pending.follow_ups / 2
  ending.add_jobs(pending.follow_ups, transition)
  for i = before + 1, joins and #pending.follow_ups / 2 or before do
    pending.joins[i] = members.pack(job.part, true, false)
  end
end

-- What the end of a claim means for others.
function ending.tell_others(job, verb, transition)
  if verb == THROTTLE then
    redis.call('HINCRBY', prefix .. 'throttled', job.id, 1)
    mark(job, THROTTLED, true)
  elseif verb == SUCCEED then
    forgive(job.queue)
  end
  if transition[18] and verb == transition[4] then
    ending.follow(job, verb, transition)
  end
  for _, items in ipairs(verb == transition[4] and transition[22] or {}) do
    table.insert(pending.flows, { items = items, part = job.part })
  end
  if has(job.marks, LIMITED) then
    let_go(job)
    local drains = verb == THROTTLE and transition[17]
    if drains or verb == RETRY or verb == FAIL or verb == SUCCEED then
      tell_gates(job, verb == RETRY or verb == FAIL, verb == SUCCEED, drains)
    end
  end
end

-- A job that was started once does not expire; one that was not is as it was before its claim, and
-- may hold its key again.
function ending.note_start(job, started)
  if started then
    job.expires = 0
    mark(job, SPENT, has(job.marks, STARTED))
  elseif has(job.marks, STARTED) and not has(job.flags, SPENT) then
    table.insert(pending.unstarted, job)
  end
end

-- Do what a transition says to a job whose claim it holds. The answer: the end of its queue's cool-down, and
-- 1 if that begins now; nil where nothing was said of it.
function ending.accept(job, verb, transition)
  local due, till, begins = after(now, transition[7]), nil, nil
  if verb == THROTTLE and transition[16] and #transition[16] > 0 then
    till, begins = cool(job.queue, transition[16], transition[7])
    due = math.max(due, till)
  end
  tally(job.queue, job.task, verb, job.due, job.started)
  if verb == RELEASE and transition[14] then
    misses.keep_why(job, transition) -- nothing ran: this is no error of the job's
  else
    ending.keep_error(job, verb, transition)
    if verb ~= SUCCEED and (transition[15] or job.part or not ENDS[verb]) then
      ending.remember(job, verb, transition)
    end
  end
  ending.keep_metadata(job, transition)
  drop_claim(job.worker, job.id)
  ending.tell_others(job, verb, transition)
  job.ended_number, job.ended_verb, job.by = job.number, verb, transition[6]
  job.lost = transition[12]
  mark(job, SOLO, transition[13])
  if verb ~= RELEASE then
    misses.forget(job)
  elseif transition[14] and job.missed == 0 then
    job.missed = now
  end
  count(job.queue, RUNNING, -1)
  if ENDS[verb] then
    ending.finish(job, verb, transition)
    return nil
  end
  if transition[8] then
    job.attempt = math.max(0, job.attempt - 1)
  end
  count(job.queue, WAITING, 1)
  ending.note_start(job, transition[20] ~= false)
  stand(job, due)
  return till, begins
end

-- Judge one transition, and do what it says if its claim holds; the answer is a character, and what
-- `accept` says. Call `settle_claims` after the last one.
local function end_claim(transition)
  local job = load_job(transition[1])
  if not job or job.seq ~= transition[3] then
    return '?' -- unknown
  end
  if job.state == RUNNING and job.number == transition[2] then
    local verb = transition[4]
    if has(job.flags, CANCEL) and transition[5] >= 0 then
      verb = transition[5]
    end
    return applied(verb), ending.accept(job, verb, transition)
  end
  if job.ended_number == transition[2] and job.by == transition[6] and job.number > 0 then
    return repeated(job.ended_verb)
  end
  return '-' -- refused
end

-- A flow that a success adds: with the part of a member it joins that flow, before the member's end counts.
-- Otherwise, and from a callback, it starts.
function ending.add_flow(items, part_key)
  local wanted = new_flows.read(items, 1)
  local new, flow = read_new(new_flows.jobs(wanted)), wanted.flow
  local part = part_key and flows.part(part_key)
  local joins = part and part.kind ~= parts.CALLBACK
  local held = not joins and flow.key and redis.call('HEXISTS', prefix .. 'flow_keys', flow.key) == 1
  if new_flows.is_known(flow.id) or new.again[1] or held or joins and flows.get(part.flow).cancelled then
    ending.leave_out(new.ids)
  elseif joins then
    new_flows.join(wanted, new, part)
  else
    new_flows.start(wanted, new)
  end
end

-- What may take what the ended claims gave back: keys of jobs that were not started, then new jobs.
-- Those come after `unknown_limit` was asked.
local function take_over()
  table.sort(pending.unstarted, function(one, other) return one.seq < other.seq end)
  for _, job in ipairs(pending.unstarted) do
    local special = special_of(job)
    if special and special[1] ~= '' and not key_holder(special[1]) then
      take_key(job.id, special[1], 0)
    end
  end
  if #pending.follow_ups > 0 then
    local joins = next(pending.joins) and pending.joins
    local new = read_new(pending.follow_ups)
    for i, answer in ipairs(store_new(new, joins)) do
      -- Jobs that are left out, or that were stored before, count for nothing.
      if answer ~= '' and #answer ~= 18 then
        ending.leave_out({ new.ids[i] })
      elseif joins and joins[i] then
        local part = string.sub(joins[i], 1, 20)
        members.count(part, 'total', 1)
        members.count(part, 'open', 1)
      end
    end
  end
  pending.unstarted, pending.follow_ups, pending.joins = nil, nil, nil
  if rawget(pending, 'flows') then
    local added = pending.flows
    pending.flows = nil
    for _, one in ipairs(added) do
      ending.add_flow(one.items, one.part)
    end
  end
end

-- A queue that runs as many jobs as it may can start others now.
function ending.refill_queues()
  for field, change in pairs(pending.counted) do
    if change < 0 and string.byte(field) == 48 + RUNNING then
      local queue = string.sub(field, 2)
      local brake = brake_of(queue)
      if brake and brake.most > 0 then
        hints.add(queue, -change)
      end
    end
  end
end

-- Everything that follows the last ended claim.
local function settle_claims()
  ending.refill_queues()
  take_over()
  settle()
  ending.settle_workers()
  write_tallies()
  wake()
end

-- The answer, as insert.lua gives it, if a follow-up of these needs an undefined limit.
local function missing_limit(transitions)
  local items = {}
  for _, transition in ipairs(transitions) do
    if transition[18] then
      ending.add_jobs(items, transition)
    end
    for _, flow in ipairs(transition[22] or {}) do
      for at = 3, #flow do
        items[#items + 1] = flow[at]
      end
    end
  end
  return #items > 0 and unknown_limit(read_new(items)) or nil
end
