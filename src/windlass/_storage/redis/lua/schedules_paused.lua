-- Since when all schedules are paused, or nil.
-- reads only
return redis.call('GET', prefix .. 'schedules_paused')
