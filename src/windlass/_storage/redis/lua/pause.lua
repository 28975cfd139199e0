-- Claims take nothing from a queue any more.
-- use: audits
-- ARGV: queue, note
audits.keep(ARGV[2], 1)
return redis.call('SADD', prefix .. 'paused', ARGV[1])
