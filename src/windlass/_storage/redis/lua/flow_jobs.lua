-- The next jobs of a flow by number.
-- ARGV: the flow's id; a job number; 1 to go down from there, 0 to go up; how many.
-- Returns number and id of each in one list.
-- use: flows
-- reads only

local flow, edge, back, most = flows.get(ARGV[1]), ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local found, answer = {}, {}

-- Of each part as many as are wanted: the best of these are the best of all.
for number = 0, (flow and flow.size or 0) - 1 do
  local key = prefix .. 'members:' .. flows.part_key(flow.id, number)
  local some
  if back then
    some = redis.call('ZREVRANGEBYSCORE', key, '(' .. edge, '-inf', 'WITHSCORES', 'LIMIT', 0, most)
  else
    some = redis.call('ZRANGEBYSCORE', key, '(' .. edge, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  end
  for at = 1, #some, 2 do
    found[#found + 1] = { tonumber(some[at + 1]), string.sub(some[at], 1, 16) }
  end
end
table.sort(found, function(one, other)
  if back then
    return one[1] > other[1]
  end
  return one[1] < other[1]
end)
for i = 1, math.min(#found, most) do
  answer[2 * i - 1], answer[2 * i] = found[i][1], found[i][2]
end
return answer
