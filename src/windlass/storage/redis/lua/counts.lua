-- How many jobs of each queue are where.
-- reads only
-- Returns the counts (state digit and queue, number, ...), the paused queues, and queue and number
-- of those that are due later.
local counts = redis.call('HGETALL', prefix .. 'counts')
local scheduled = {}
for at = 1, #counts, 2 do
  if string.sub(counts[at], 1, 1) == '0' then
    local queue = string.sub(counts[at], 2)
    local later = prefix .. 'later:' .. queue
    scheduled[#scheduled + 1] = queue
    scheduled[#scheduled + 1] = redis.call('ZCOUNT', later, string.format('(%.0f', now), '+inf')
  end
end
return { counts, redis.call('SMEMBERS', prefix .. 'paused'), scheduled }
