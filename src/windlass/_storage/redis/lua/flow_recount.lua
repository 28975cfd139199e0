-- FlowStore.recount.
-- ARGV: the number of a flow they come after, how many flows, '1' to repair. Answer: how many were counted, the
-- number of the last; then flow's id, part's name, count, what is stored and what there is, ...
-- use: lines flows

local JOBS_AT_ONCE = 10000 -- of one call
local COUNTED = { 'succeeded', 'failed', 'cancelled', 'stopped', 'skipped', 'open', 'blocked', 'total' }
local answer, looked, repairs = { 0, 0 }, 0, ARGV[3] == '1'

-- A member that its flow has ended is in one of two lists, one that waits for its turn in a third.
local function count_part(part)
  local all, ids = redis.call('ZRANGE', prefix .. 'members:' .. part.key, 0, -1), {}
  for i, member in ipairs(all) do
    ids[i] = string.sub(member, 1, 16)
  end
  local found, lists = {}, {}
  for _, field in ipairs(COUNTED) do
    found[field] = 0
  end
  for _, name in ipairs({ 'stopped', 'skipped', 'blocked' }) do
    lists[name] = read_all('ZMSCORE', prefix .. name .. ':' .. part.key, ids)
  end
  for i, kept in ipairs(read_all('HMGET', prefix .. 'state', ids)) do
    local state = kept and string.byte(kept) or WAITING
    local as = lists.stopped[i] and 'stopped' or lists.skipped[i] and 'skipped' or members.ended_as(state)
    if not kept and redis.call('HEXISTS', prefix .. 'jobs', ids[i]) == 0 then
      as = 'failed' -- its record could not be read, and was taken away
    elseif state < SUCCEEDED then
      as = 'open'
      found.blocked = found.blocked + (lists.blocked[i] and 1 or 0)
    end
    found[as] = found[as] + 1
  end
  found.total = #ids
  looked = looked + #ids
  return found
end

local function recount(flow)
  for _, part in ipairs(flows.all_parts(flow)) do
    local found = count_part(part)
    for _, field in ipairs(COUNTED) do
      if part[field] ~= found[field] then
        local name = cmsgpack.unpack(redis.call('HGET', prefix .. 'plans', part.key))[1]
        local wrong = { flow.id, name, field, part[field], found[field] }
        for i = 1, 5 do
          answer[#answer + 1] = wrong[i]
        end
        part[field] = repairs and found[field] or part[field]
      end
    end
    if repairs then
      flows.spread(part)
    end
  end
end

local some = redis.call(
  'ZRANGEBYSCORE', prefix .. 'flow_numbers', '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2]
)
for at = 1, #some, 2 do
  if looked >= JOBS_AT_ONCE then
    break
  end
  local flow = flows.get(some[at])
  if flow then
    recount(flow)
  end
  answer[1], answer[2] = answer[1] + 1, tonumber(some[at + 1])
end
settle()
return answer
