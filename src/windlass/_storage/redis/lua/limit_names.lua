-- The names of all limits.
-- reads only
return redis.call('HKEYS', prefix .. 'limits')
