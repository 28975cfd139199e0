-- Renew a worker's lease if its row is live, and say what it holds.
-- use: workers
-- unconfirmed: no promise depends on a heartbeat
-- ARGV: worker, the bytes it uses ('': it does not say), then source and gauges of each reading
-- Returns live, now, claims, duty (nothing: work).
-- runs when memory is full
local worker = ARGV[1]
local live = is_live(worker)
local row = prefix .. 'worker:' .. worker
if live then
  redis.call('HSET', row, 'beat', now)
  if ARGV[2] ~= '' then
    redis.call('HSET', row, 'memory', ARGV[2])
  end
  if #ARGV > 2 then
    local minute = string.format('%.0f', now - now % 60000000)
    redis.call('ZADD', prefix .. 'gauges', minute, minute)
    redis.call('HSET', prefix .. 'gauges:' .. minute, unpack(ARGV, 3))
  end
  redis.call('ZADD', prefix .. 'live', now + redis.call('HGET', row, 'lease'), worker)
end
return { live and 1 or 0, now, claims_of(worker), live and redis.call('HGET', row, 'duty') }
