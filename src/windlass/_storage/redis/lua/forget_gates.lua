-- Drop budgets of a limit that are as if they had never been used, a bounded number looked at.
-- use: gates
-- ARGV: limit, cursor (of HSCAN: '0' to begin)
-- Returns the next cursor: '0' at the end.
-- runs when memory is full
local key = prefix .. 'gates:' .. ARGV[1]
local page = redis.call('HSCAN', key, ARGV[2], 'COUNT', 500)
for at = 1, #page[2], 2 do
  local gate = gate_of({ ARGV[1], page[2][at] })
  if (tonumber(page[2][at + 1]) or 0) <= now and used(gate) == 0 then
    redis.call('HDEL', key, page[2][at])
  end
end
return page[1]
