-- Claims take from a queue again.
-- use: jobs audits
-- ARGV: queue, note
-- runs when memory is full
redis.call('SREM', prefix .. 'paused', ARGV[1])
audits.keep(ARGV[2], 1)
wake({ [ARGV[1]] = true })
return 1
