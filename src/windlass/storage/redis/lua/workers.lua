-- Rows, newest first.
-- use: workers
-- reads only
-- ARGV: 'live' or 'all'
-- Returns start, state, started, beat, ended and the number of claims for each.
local found = redis.call('ZRANGE', prefix .. (ARGV[1] == 'live' and 'live' or 'born'), 0, -1)
local order = {}
for _, worker in ipairs(found) do
  order[worker] = tonumber(redis.call('ZSCORE', prefix .. 'born', worker)) or 0
end
table.sort(found, function(one, other) return order[one] > order[other] end)
local rows = {}
for i, worker in ipairs(found) do
  local row = redis.call('HMGET', prefix .. 'worker:' .. worker, 'start', 'state', 'started', 'beat', 'ended')
  row[6] = redis.call('SCARD', prefix .. 'running:' .. worker)
  rows[i] = row
end
return rows
