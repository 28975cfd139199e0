-- The events of a job.
-- reads only
-- ARGV: id
-- Returns number (`>d`) and record of each, in no order.
return redis.call('HGETALL', prefix .. 'events:' .. ARGV[1])
