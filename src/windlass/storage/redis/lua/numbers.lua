-- The jobs in some states that are not waiting, if they are few.
-- use: jobs
-- reads only
-- ARGV: most, state digit, ...
-- Returns id and job number of each, in no order; nil if there are more than `most`.
local most, total = tonumber(ARGV[1]), 0
local sets = {}
for i = 2, #ARGV do
  if tonumber(ARGV[i]) == RUNNING then
    for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'holders')) do
      sets[#sets + 1] = { 'SMEMBERS', 'running:' .. worker }
      total = total + redis.call('SCARD', prefix .. 'running:' .. worker)
    end
  else
    -- Each queue there has one at least: so few are looked at, however many there are.
    for _, queue in ipairs(redis.call('ZRANGE', prefix .. 'oldest:' .. ARGV[i], 0, most)) do
      local line = 'finished:' .. ARGV[i] .. ':' .. queue
      sets[#sets + 1] = { 'ZRANGE', line, 0, -1 }
      total = total + redis.call('ZCARD', prefix .. line)
    end
  end
end
if total > most then
  return false
end
local found = {}
for _, set in ipairs(sets) do
  local ids = redis.call(set[1], prefix .. set[2], unpack(set, 3))
  local numbers = read_all('ZMSCORE', prefix .. 'all', ids)
  for i, id in ipairs(ids) do
    if numbers[i] then
      found[#found + 1] = { id, tonumber(numbers[i]) }
    end
  end
end
return found
