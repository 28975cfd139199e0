-- Make a worker's row, live, unless there is one.
-- ARGV: worker, start (packed, only stored), lease
-- Returns now.
-- runs when memory is full
local worker = ARGV[1]
local row = prefix .. 'worker:' .. worker
if redis.call('EXISTS', row) == 0 then
  local number = redis.call('INCR', prefix .. 'born_seq')
  redis.call('HSET', row, 'start', ARGV[2], 'lease', ARGV[3], 'state', 'live', 'started', now, 'beat', now)
  redis.call('ZADD', prefix .. 'born', number, worker)
  redis.call('ZADD', prefix .. 'live', now + ARGV[3], worker)
end
return now
