-- What some workers said about themselves.
-- reads only
-- ARGV: worker, ...
-- Returns for each the number of its registration and what it said, or '' twice where there is no row.
local found = {}
for i, worker in ipairs(ARGV) do
  found[2 * i - 1] = redis.call('ZSCORE', prefix .. 'born', worker) or ''
  found[2 * i] = redis.call('HGET', prefix .. 'worker:' .. worker, 'start') or ''
end
return found
