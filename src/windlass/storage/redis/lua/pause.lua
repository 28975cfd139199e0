-- Claims take nothing from a queue any more.
-- ARGV: queue
return redis.call('SADD', prefix .. 'paused', ARGV[1])
