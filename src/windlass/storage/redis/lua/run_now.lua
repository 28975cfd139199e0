-- Make waiting jobs due now, unless they already are.
-- use: lines
-- ARGV: id, ...
-- Returns for each 1, or 0 where it is not waiting.
local answers = {}
for i, id in ipairs(ARGV) do
  local job = load_job(id)
  answers[i] = job and job.state == WAITING and 1 or 0
  if answers[i] == 1 and job.due > now then
    leave_line(job)
    stand(job, now)
  end
end
settle()
wake()
return answers
