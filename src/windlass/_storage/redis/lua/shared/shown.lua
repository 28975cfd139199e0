-- Jobs as people see them.
-- use: jobs keys

local function metadata_of(job)
  local noted = job.ended_number > 0 and redis.call('HGET', prefix .. 'metadata', job.id)
  return noted and struct.unpack('>I4', noted) == job.ended_number and string.sub(noted, 5) or ''
end

-- Asked record, state record, error, traceback and progress ('' each where there is none),
-- whether the job holds its key, how often it was throttled, why it was missed (''), and what its
-- handler noted in the run that ended last ('').
local function show(job)
  local failed = has(job.flags, ERROR)
  local held = 0
  if has(job.marks, KEYED) then
    local special = special_of(job)
    if special and special[1] ~= '' and key_holder(special[1]) == job.id then
      held = 1
    end
  end
  return {
    job.asked,
    job.kept or '',
    failed and redis.call('HGET', prefix .. 'errors', job.id) or '',
    failed and redis.call('HGET', prefix .. 'tracebacks', job.id) or '',
    job.number > 0 and redis.call('HGET', prefix .. 'progress', job.id) or '',
    held,
    has(job.flags, THROTTLED) and tonumber(redis.call('HGET', prefix .. 'throttled', job.id)) or 0,
    job.missed > 0 and redis.call('HGET', prefix .. 'missed', job.id) or '',
    metadata_of(job),
  }
end
