-- Failed jobs become discarded, all or none.
-- use: orders
-- ARGV: reason, id, ... (each once)
-- Returns 'done'; or what stands in the way: 'missing' and the id, 'state' with id and state digit.
local reason = table.remove(ARGV, 1)
local jobs = load_jobs(ARGV)
for i, job in ipairs(jobs) do
  if not job then
    return { 'missing', ARGV[i] }
  elseif job.state ~= FAILED then
    return { 'state', job.id, job.state }
  end
end
for _, job in ipairs(jobs) do
  orders.discard(job, reason)
end
settle()
wake()
return { 'done' }
