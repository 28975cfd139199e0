-- Claims take from a queue again.
-- use: hints audits
-- ARGV: queue, note
-- runs when memory is full
redis.call('SREM', prefix .. 'paused', ARGV[1])
audits.keep(ARGV[2], 1)
wake({ [ARGV[1]] = true })
hints.open(ARGV[1])
hints.flush()
return 1
