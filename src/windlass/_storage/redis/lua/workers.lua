-- Rows, newest first.
-- use: workers
-- reads only
-- Returns start, state, started, beat, ended, memory, duty and the number of claims for each.
local rows = {}
for i, worker in ipairs(redis.call('ZREVRANGE', prefix .. 'born', 0, -1)) do
  local row = redis.call(
    'HMGET', prefix .. 'worker:' .. worker, 'start', 'state', 'started', 'beat', 'ended', 'memory',
    'duty'
  )
  row[8] = redis.call('SCARD', prefix .. 'running:' .. worker)
  rows[i] = row
end
return rows
