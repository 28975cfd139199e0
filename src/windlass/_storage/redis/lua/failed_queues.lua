-- The queues with failed jobs.
-- reads only
return redis.call('ZRANGE', prefix .. 'oldest:3', 0, -1)
