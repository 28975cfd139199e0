-- LimitStore.specs.
-- Answer: what define_limits.lua stored, of every limit.
-- reads only

return redis.call('HVALS', prefix .. 'limits')
