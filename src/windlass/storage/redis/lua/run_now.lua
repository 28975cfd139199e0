-- Make waiting jobs due now, unless they already are.
-- use: orders
-- ARGV: id, ...
-- Returns for each 1, or 0 where it is not waiting.
local answers = {}
for i, id in ipairs(ARGV) do
  local job = load_job(id)
  answers[i] = job and orders.run_now(job) == DONE and 1 or 0
end
settle()
wake()
return answers
