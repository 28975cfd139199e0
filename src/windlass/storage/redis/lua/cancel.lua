-- JobStore.cancel.
-- ARGV: ids. Answer: one character for each: c cancelled, r requested, l too late, ? unknown.
-- use: lines

local answers = {}
for i, id in ipairs(ARGV) do
  local job = load_job(id)
  if not job then
    answers[i] = '?'
  elseif job.state == WAITING then
    end_waiting(job, CANCELLED, '')
    answers[i] = 'c'
  elseif job.state == RUNNING then
    mark(job, CANCEL, true)
    save_job(job)
    answers[i] = 'r'
  else
    answers[i] = 'l'
  end
end
settle()
wake()
return table.concat(answers)
