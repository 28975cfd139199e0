-- Ending claims: the fence, the cancel request, and everything that follows.
--
-- A transition is {id, number, seq, verb, if_cancelled, by, delay, refund, result, error, traceback,
-- lost, solo, missed, keep}. Verbs are the numbers of layout.py; if_cancelled is -1 for none; error
-- is msgpack [kind, message] or '', result a string or false.
-- use: jobs keys lanes lines rollups

local HISTORY = 32
local SUCCEED, RETRY, SNOOZE, THROTTLE, RELEASE, FAIL, CANCEL_VERB = 1, 2, 3, 4, 5, 6, 7
local ENDS = { [SUCCEED] = SUCCEEDED, [FAIL] = FAILED, [CANCEL_VERB] = CANCELLED }

-- Answers are one character: applied and repeated ones say the verb that took effect.
local REFUSED, UNKNOWN = '-', '?'

local function applied(verb)
  return string.char(65 + verb)
end

local function repeated(verb)
  return string.char(97 + verb)
end

local idle = {}

-- A job is not this worker's any more. `settle_workers` forgets workers that hold nothing.
local function drop_claim(worker, id)
  redis.call('SREM', prefix .. 'running:' .. worker, id)
  idle[worker] = true
end

-- Workers that are not live and hold nothing are nobody's concern.
local function settle_workers()
  for worker in pairs(idle) do
    if redis.call('EXISTS', prefix .. 'running:' .. worker) == 0
      and not redis.call('ZSCORE', prefix .. 'live', worker) then
      redis.call('SREM', prefix .. 'holders', worker)
    end
  end
  idle = {}
end

-- Every claim that did not succeed stays in the history.
local function remember(job, verb, transition)
  local error = transition[10]
  local entry = struct.pack(
    '>I4I4Bi8i8I4c0Hc0', job.number, job.attempt, verb, job.started, now, #error, error,
    #job.worker, job.worker
  ) .. transition[11]
  local history = prefix .. 'history:' .. job.id
  redis.call('RPUSH', history, entry)
  if job.number > HISTORY then
    redis.call('LTRIM', history, -HISTORY, -1)
  end
end

-- The last error: the transition's, or none after a success.
local function keep_error(job, verb, transition)
  if verb == SUCCEED then
    if has(job.flags, ERROR) then
      redis.call('HDEL', prefix .. 'errors', job.id)
      redis.call('HDEL', prefix .. 'tracebacks', job.id)
      mark(job, ERROR, false)
    end
  elseif transition[10] ~= '' then
    redis.call('HSET', prefix .. 'errors', job.id, transition[10])
    if transition[11] ~= '' then
      redis.call('HSET', prefix .. 'tracebacks', job.id, transition[11])
    else
      redis.call('HDEL', prefix .. 'tracebacks', job.id)
    end
    mark(job, ERROR, true)
  end
end

-- The job ends with its claim.
local function finish(job, verb, transition)
  job.state, job.finished, job.tail = ENDS[verb], now, ''
  mark(job, RESULT, false)
  mark(job, REASON, false)
  if verb == SUCCEED and transition[9] then
    job.tail = transition[9]
    mark(job, RESULT, true)
  end
  count(job.queue, job.state, 1)
  if transition[15] then
    redis.call('ZADD', prefix .. 'finished:' .. job.state, now, job.id)
    save_job(job)
    free_key_at_end(job)
  else
    delete_job(job)
  end
end

-- Do what a transition says to a job whose claim it holds.
local function accept(job, verb, transition)
  tally(job.queue, job.task, verb, job.due, job.started)
  keep_error(job, verb, transition)
  if verb ~= SUCCEED and (transition[15] or not ENDS[verb]) then
    remember(job, verb, transition)
  end
  drop_claim(job.worker, job.id)
  if has(job.marks, LIMITED) then
    let_go(job)
  end
  job.ended_number, job.ended_verb, job.by = job.number, verb, transition[6]
  job.lost = transition[12]
  mark(job, SOLO, transition[13])
  if verb ~= RELEASE then
    job.missed = 0
  elseif transition[14] and job.missed == 0 then
    job.missed = now
  end
  count(job.queue, RUNNING, -1)
  if ENDS[verb] then
    finish(job, verb, transition)
    return
  end
  if transition[8] then
    job.attempt = math.max(0, job.attempt - 1)
  end
  count(job.queue, WAITING, 1)
  stand(job, after(now, transition[7]))
end

-- Judge one transition, and do what it says if its claim holds; the answer is a character.
-- Call `settle`, `settle_workers` and `write_tallies` after the last one.
local function end_claim(transition)
  local job = load_job(transition[1])
  if not job or job.seq ~= transition[3] then
    return UNKNOWN
  end
  if job.state == RUNNING and job.number == transition[2] then
    local verb = transition[4]
    if has(job.flags, CANCEL) and transition[5] >= 0 then
      verb = transition[5]
    end
    accept(job, verb, transition)
    return applied(verb)
  end
  if job.ended_number == transition[2] and job.by == transition[6] and job.number > 0 then
    return repeated(job.ended_verb)
  end
  return REFUSED
end
