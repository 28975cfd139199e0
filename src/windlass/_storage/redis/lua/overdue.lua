-- reads only
-- Live workers whose last beat is longer ago than their lease.
return redis.call('ZRANGEBYSCORE', prefix .. 'live', '-inf', string.format('(%.0f', now))
