-- Which jobs people look for: what `JobFilter` says, as msgpack of a map. Instants are numbers, `states`
-- the digits of those that may be, `shown` a map of what a waiting job may be. Words are not compared
-- here but with what a job shows of itself, in Python.
-- use: jobs

local AT_ONCE = 20 -- state records read together: few are large
-- Functions of one table, because one chunk has 200 locals at most. `read`: bytes so far; `kept`: state records.
local matching = {}

function matching.begin()
  matching.read, matching.kept = 0, {}
end

-- Asked records are read one by one: a payload may be large, and the server waits.
function matching.record(key, id)
  local text = redis.call('HGET', prefix .. key, id)
  matching.read = matching.read + (text and #text or 0)
  return text
end

function matching.is_or_any(value, wanted)
  return wanted == nil or value == wanted
end

function matching.lies_within(at, from, till)
  return (from == nil or at >= from) and (till == nil or at < till)
end

-- What people see of a waiting job.
function matching.shown_as(job)
  if job.attempt > job.most - job.budget then
    return 'retrying'
  end
  return (job.due > now or job.blocked) and 'scheduled' or 'ready'
end

-- Whether the state record alone rules a job out, so that few payloads are read.
function matching.ruled_out(kept, wanted)
  if not kept then -- it was never touched, so it waits
    return wanted.states and not string.find(wanted.states, WAITING, 1, true)
      or wanted.worker or wanted.error or wanted.frame
  end
  local state, flags, _, _, _, queue, task = glance(kept)
  return not state or wanted.states and not string.find(wanted.states, state, 1, true)
    or not matching.is_or_any(queue, wanted.queue) or not matching.is_or_any(task, wanted.task)
    or (wanted.error or wanted.frame) and not has(flags, ERROR)
end

-- Payload and what few jobs carry, packed; '' each where a damaged record does not say where they are.
function matching.contents_of(job)
  local fine, payload, extras = pcall(parts_of, job.asked, job.rest)
  if not fine then
    return '', ''
  end
  return string.sub(job.asked, payload + 5, extras - 1), string.sub(job.asked, extras)
end

function matching.carries(job, wanted)
  if not (wanted.tenant or wanted.principal or wanted.tag or wanted.correlation_id or wanted.parent) then
    return true
  end
  local _, packed = matching.contents_of(job)
  local fine, extras = pcall(cmsgpack.unpack, packed)
  if not fine or type(extras) ~= 'table' then
    return false
  end
  local tagged = wanted.tag == nil
  for _, tag in ipairs(extras[3] or {}) do
    tagged = tagged or tag == wanted.tag
  end
  return tagged and matching.is_or_any(extras[4], wanted.tenant) and matching.is_or_any(extras[5], wanted.principal)
    and matching.is_or_any(extras[6], wanted.correlation_id) and matching.is_or_any(extras[8], wanted.parent)
end

-- The id of its flow in hex digits; nil: it is in none.
function matching.flow_of(job)
  return job.part and (string.gsub(string.sub(job.part, 1, 16), '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end))
end

-- Kind and text of the last error; '' each where there is none.
function matching.error_of(job)
  local said = has(job.flags, ERROR) and matching.record('errors', job.id)
  local fine, parts = pcall(cmsgpack.unpack, said or '')
  if fine and type(parts) == 'table' then
    return parts[1] or '', parts[2] or ''
  end
  return '', ''
end

function matching.erred_so(job, wanted)
  if wanted.error and wanted.error ~= matching.error_of(job) then
    return false
  end
  return wanted.frame == nil
    or has(job.flags, ERROR) and (matching.record('frames', job.id) or '') == wanted.frame
end

-- The state record of one of these ids; they are asked for in order.
function matching.kept_of(ids, at)
  if matching.kept[at] == nil then
    local last = math.min(at + AT_ONCE - 1, #ids)
    for i, kept in ipairs(redis.call('HMGET', prefix .. 'state', unpack(ids, at, last))) do
      matching.kept[at + i - 1] = kept
      matching.read = matching.read + (kept and #kept or 0)
    end
  end
  return matching.kept[at]
end

-- The job at this place among ids, if it is one of those that are wanted; else nil.
function matching.job(ids, at, wanted)
  local id, kept = ids[at], matching.kept_of(ids, at)
  if matching.ruled_out(kept, wanted) then
    return nil
  end
  local asked = matching.record('jobs', id)
  local job = asked and parse_job(id, asked, kept)
  if job and matching.is_or_any(job.queue, wanted.queue) and matching.is_or_any(job.task, wanted.task)
    and (job.state ~= WAITING or wanted.shown == nil or wanted.shown[matching.shown_as(job)])
    and matching.is_or_any(job.worker, wanted.worker)
    and (wanted.flow == nil or matching.flow_of(job) == wanted.flow)
    and (wanted.key == nil or (special_of(job) or {})[1] == wanted.key)
    and matching.lies_within(job.created, wanted.created_from, wanted.created_until)
    and matching.lies_within(job.finished, wanted.finished_from, wanted.finished_until)
    and matching.carries(job, wanted) and matching.erred_so(job, wanted) then
    return job
  end
end
