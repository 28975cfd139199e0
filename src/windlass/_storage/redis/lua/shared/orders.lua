-- What people order, one job at a time. `settle` follows, and `wake` where something was done.
-- use: lines flows

local DONE, REQUESTED, UNKNOWN_JOB, WRONG_STATE, CONFLICT = 'd', 'r', '?', 's', 'k'
local orders = {}

-- The key that a requeued job takes again, and for how long. A window until the start stays released,
-- whether the job ever started or not.
local function retaken(job)
  local special = has(job.marks, KEYED) and special_of(job)
  if special and special[1] ~= '' and special[2] ~= 'until_started' then
    return special[1], special[3]
  end
end

function orders.requeue(job)
  if job.state ~= FAILED and job.state ~= CANCELLED and job.state ~= DISCARDED then
    return WRONG_STATE
  end
  local refusal = job.part and members.stays_ended(job)
  if refusal then
    return refusal == 'key' and CONFLICT or WRONG_STATE
  end
  local key, period = retaken(job)
  local holder = key and key_holder(key)
  if holder and holder ~= job.id then
    return CONFLICT
  end
  if key and not holder then
    take_key(job.id, key, period)
  end
  if job.part then
    members.come_back(job)
  end
  if job.blocked then
    hints.tell(job.queue) -- a claim settles its part
  end
  stand_again(job)
  return DONE
end

function orders.discard(job, reason)
  if job.state ~= FAILED then
    return WRONG_STATE
  end
  drop_ended(ended_as(job), job.queue, { job.id })
  count(job.queue, FAILED, -1)
  count(job.queue, DISCARDED, 1)
  job.state, job.finished, job.tail = DISCARDED, now, reason
  add_ended(job)
  if job.part then
    members.count(job.part, 'failed', -1)
    members.count(job.part, 'cancelled', 1)
  end
  mark(job, RESULT, false)
  mark(job, REASON, true)
  save_job(job)
  return DONE
end

-- Its worker is asked to end it.
local function request_end(job)
  mark(job, CANCEL, true)
  save_job(job)
  return REQUESTED
end

function orders.cancel(job)
  if job.state == RUNNING then
    return request_end(job)
  elseif job.state ~= WAITING then
    return WRONG_STATE
  end
  end_waiting(job, CANCELLED, '')
  return DONE
end

function orders.run_now(job)
  if job.state ~= WAITING or job.blocked then
    return WRONG_STATE
  end
  if job.due > now then
    leave_line(job)
    stand(job, now)
  end
  return DONE
end

function orders.delete(job)
  if job.part then
    return WRONG_STATE
  elseif job.state == RUNNING then
    return request_end(job)
  elseif job.state == WAITING then
    leave_line(job)
  end
  delete_job(job)
  return DONE
end

-- Priority and queue stand among what was asked for: it is written anew, the rest of it as it is.
local function rewrite_asked(job, priority, queue)
  local front = string.sub(job.asked, 1, 46)
    .. struct.pack('>BHc0BHc0Bi8', TEXT, #queue, queue, TEXT, #job.task, job.task, INT, priority)
  job.asked, job.rest = front .. string.sub(job.asked, job.rest - 20), #front + 21
  job.priority, job.queue = priority, queue
  redis.call('HSET', prefix .. 'jobs', job.id, job.asked)
end

-- A blocked member gets another priority or queue, and stays blocked.
local function edit_blocked(job, priority, queue)
  count(job.queue, WAITING, -1)
  members.count_blocked(job.queue, -1)
  rewrite_asked(job, priority or job.priority, queue or job.queue)
  count(job.queue, WAITING, 1)
  members.count_blocked(job.queue, 1)
  if job.kept then
    save_job(job)
  end
  return DONE
end

-- A waiting job gets another due time, priority or queue; false leaves one as it is.
function orders.edit(job, due, priority, queue)
  if job.state ~= WAITING or job.blocked and due then
    return WRONG_STATE
  elseif job.blocked then
    return edit_blocked(job, priority, queue)
  end
  leave_line(job)
  if priority or queue then
    count(job.queue, WAITING, -1)
    rewrite_asked(job, priority or job.priority, queue or job.queue)
    count(job.queue, WAITING, 1)
  end
  stand(job, due or job.due)
  return DONE
end
