-- Now, and the ids of live workers.
-- reads only
local live = redis.call('ZRANGE', prefix .. 'live', 0, -1)
table.insert(live, 1, now)
return live
