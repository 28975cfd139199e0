-- Claims take from a queue again.
-- use: jobs
-- ARGV: queue
redis.call('SREM', prefix .. 'paused', ARGV[1])
wake()
return 1
