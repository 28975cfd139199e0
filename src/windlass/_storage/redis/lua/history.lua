-- The ended claims of a job, oldest first.
-- reads only
-- ARGV: id
return redis.call('LRANGE', prefix .. 'history:' .. ARGV[1], 0, -1)
