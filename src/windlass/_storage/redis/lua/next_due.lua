-- When the next waiting job that is not ready falls due.
-- reads only
-- ARGV: queue, ...; none: of all queues
-- Returns the instant, or nil.
if #ARGV == 0 then
  local first = redis.call('ZRANGE', prefix .. 'due', 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or false
end
local best = false
for _, queue in ipairs(ARGV) do
  local due = tonumber(redis.call('ZSCORE', prefix .. 'due', queue) or nil)
  if due and (not best or due < best) then
    best = due
  end
end
return best
