-- Failed jobs become discarded, all or none.
-- use: lines
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
  add_ended(DISCARDED, job.queue, job.id)
  drop_ended(FAILED, job.queue, { job.id })
  count(job.queue, FAILED, -1)
  count(job.queue, DISCARDED, 1)
  job.state, job.finished, job.tail = DISCARDED, now, reason
  mark(job, RESULT, false)
  mark(job, REASON, true)
  save_job(job)
end
settle()
wake()
return { 'done' }
