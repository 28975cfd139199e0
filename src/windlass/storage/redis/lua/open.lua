-- The first script of a storage: that it runs shows that scripts may run, that its write is confirmed
-- shows that there are enough replicas.
redis.call('SET', prefix .. 'opened', now)
return 1
