-- Put failed, cancelled or discarded jobs back to waiting, all or none.
-- use: lines shown
-- ARGV: id, ... (each once)
-- Returns 'done' and what shown.lua says of each; or what stands in the way: 'missing' and the id,
-- 'state' with id and state digit, 'key' with key and holder.
local jobs = load_jobs(ARGV)

-- A window until the start stays released, whether the job ever started or not.
local function retaken(job)
  local special = has(job.marks, KEYED) and special_of(job)
  if special and special[1] ~= '' and special[2] ~= 'until_started' then
    return special[1], special[3]
  end
end

local taken = {}
for i, job in ipairs(jobs) do
  if not job then
    return { 'missing', ARGV[i] }
  elseif job.state ~= FAILED and job.state ~= CANCELLED and job.state ~= DISCARDED then
    return { 'state', job.id, job.state }
  end
  local key = retaken(job)
  if key then
    taken[key] = taken[key] or key_holder(key) or job.id
    if taken[key] ~= job.id then
      return { 'key', key, taken[key] }
    end
  end
end

for _, job in ipairs(jobs) do
  count(job.queue, job.state, -1)
  count(job.queue, WAITING, 1)
  job.most = job.attempt + job.budget
  job.expires, job.missed, job.lost = 0, 0, 0
  mark(job, CANCEL, false)
  mark(job, SOLO, false)
  local key, period = retaken(job)
  if key and key_holder(key) ~= job.id then
    take_key(job.id, key, period)
  end
  stand(job, now)
end
settle()
wake()
local found = { 'done' }
for i, job in ipairs(jobs) do
  found[i + 1] = show(job)
end
return found
