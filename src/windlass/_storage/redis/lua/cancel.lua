-- JobStore.cancel.
-- ARGV: ids. Answer: one character for each, as order.lua gives them.
-- use: orders
-- runs when memory is full

local answers = {}
for i, id in ipairs(ARGV) do
  local job = load_job(id)
  answers[i] = job and orders.cancel(job) or UNKNOWN_JOB
end
local told = table.concat(answers)
settle()
wake()
if string.find(told, REQUESTED, 1, true) then
  notify('cancel')
end
return told
