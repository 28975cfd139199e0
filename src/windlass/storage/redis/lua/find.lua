-- Jobs newest first, from one place downwards, a bounded number of them looked at.
-- use: shown
-- reads only
-- ARGV: before (a job number, or ''), digits of the wanted states ('': all), queue, task ('': any),
--   limit
-- Returns where to go on ('' at the end), then what shown.lua says of each that matches.
local states, queue, task, limit = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local LOOKS, BYTES = 500, 2000000

-- Records are read one by one: a payload or a result may be large, and the server waits.
local read = 0
local function record(key, id)
  local text = redis.call('HGET', prefix .. key, id)
  read = read + (text and #text or 0)
  return text
end

-- State, queue and task of a job, from the record that says it.
local function outline(id)
  local kept = record('state', id)
  if kept then
    local state, _, _, _, _, its_queue, its_task = glance(kept)
    if not state then
      return nil
    end
    return kept, nil, state, its_queue, its_task
  end
  if states ~= '' and not string.find(states, WAITING, 1, true) then
    return nil -- it was never touched, so it waits
  end
  local asked = record('jobs', id)
  local job = parse_job(id, asked, false)
  if job then
    return false, asked, WAITING, job.queue, job.task
  end
end

local found = { '' }
local before = ARGV[1] == '' and '+inf' or '(' .. ARGV[1]
local some = redis.call(
  'ZREVRANGEBYSCORE', prefix .. 'all', before, '-inf', 'WITHSCORES', 'LIMIT', 0, LOOKS
)
for at = 1, #some, 2 do
  local id = some[at]
  local kept, asked, state, its_queue, its_task = outline(id)
  if state and (states == '' or string.find(states, state, 1, true))
    and (queue == '' or queue == its_queue) and (task == '' or task == its_task) then
    local job = parse_job(id, asked or record('jobs', id), kept)
    if job then
      found[#found + 1] = show(job)
    end
  end
  found[1] = some[at + 1]
  if #found > limit or read > BYTES then
    return found
  end
end
if #some < 2 * LOOKS then
  found[1] = ''
end
return found
