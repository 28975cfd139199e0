-- Running jobs whose worker's row is missing or not live: worker by worker, oldest claim first.
-- use: workers
-- reads only
-- ARGV: limit
-- Returns for each asked record, state record, and error or ''.
local limit = tonumber(ARGV[1])
local lost = {}
for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'holders')) do
  if not is_live(worker) then
    lost[#lost + 1] = worker
  end
end
table.sort(lost)
local found = {}
for _, worker in ipairs(lost) do
  local claims = claims_of(worker)
  table.sort(claims, function(one, other)
    if one[5] ~= other[5] then
      return one[5] < other[5]
    end
    return one[3] < other[3]
  end)
  for _, claim in ipairs(claims) do
    if #found == limit then
      return found
    end
    local id = claim[1]
    local asked = redis.call('HGET', prefix .. 'jobs', id)
    if asked then
      local kept = redis.call('HGET', prefix .. 'state', id)
      found[#found + 1] = { asked, kept, redis.call('HGET', prefix .. 'errors', id) or '' }
    end
  end
end
return found
