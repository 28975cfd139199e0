-- The names of all schedules, in no order.
-- reads only
return redis.call('HKEYS', prefix .. 'schedules')
