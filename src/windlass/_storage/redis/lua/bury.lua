-- Turn live rows dead.
-- use: workers
-- ARGV: 'any' or 'overdue' (only those whose lease has run out), worker, ...
-- Returns those that were turned.
-- runs when memory is full
local buried = {}
for i = 2, #ARGV do
  local ends = redis.call('ZSCORE', prefix .. 'live', ARGV[i])
  if ends and (ARGV[1] == 'any' or tonumber(ends) < now) and end_worker(ARGV[i], 'dead') then
    buried[#buried + 1] = ARGV[i]
  end
end
return buried
