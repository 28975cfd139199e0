-- The job that holds a key.
-- use: keys
-- reads only
-- ARGV: key
-- Returns its id, its number, and how many jobs are newer; nil: no job holds it.
local id = key_holder(ARGV[1])
local number = id and redis.call('ZSCORE', prefix .. 'all', id)
return number
  and { id, tonumber(number), redis.call('ZCOUNT', prefix .. 'all', '(' .. number, '+inf') } or false
