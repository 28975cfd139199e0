-- Put failed, cancelled or discarded jobs back to waiting, all or none.
-- use: orders shown
-- ARGV: id, ... (each once)
-- Returns 'done' and what shown.lua says of each; or what stands in the way: 'missing' and the id,
-- 'state' with id and state digit, 'key' with key and holder.
local jobs = load_jobs(ARGV)

local taken = {}
for i, job in ipairs(jobs) do
  if not job then
    return { 'missing', ARGV[i] }
  elseif not orders.may_requeue(job) then
    return { 'state', job.id, job.state }
  end
  local key = orders.retaken(job)
  if key then
    taken[key] = taken[key] or key_holder(key) or job.id
    if taken[key] ~= job.id then
      return { 'key', key, taken[key] }
    end
  end
end

for _, job in ipairs(jobs) do
  orders.put_back(job)
end
settle()
wake()
local found = { 'done' }
for i, job in ipairs(jobs) do
  found[i + 1] = show(job)
end
return found
