-- The settings of a queue, or ''.
-- ARGV: queue
-- reads only

return redis.call('HGET', prefix .. 'settings', ARGV[1]) or ''
