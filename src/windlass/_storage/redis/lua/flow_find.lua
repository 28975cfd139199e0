-- FlowStore.find.
-- ARGV: msgpack of a map of what is wanted (states: a list of numbers; name, key, tenant), before (a number of
-- a flow, or ''), how many at most, how many are looked at.
-- Answer: the cursor of the next step ('' at the end); then of each its id, record, and the records of its
-- parts, one after the other.
-- use: flows
-- reads only

local PARTS = 20000 -- read by one call
local wanted, limit = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[3])
local before = ARGV[2] == '' and '+inf' or '(' .. ARGV[2]
local all = prefix .. 'flow_numbers'
local some = redis.call('ZREVRANGEBYSCORE', all, before, '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4])

local function fits(flow)
  local its_state = wanted.states == nil
  for _, state in ipairs(wanted.states or {}) do
    its_state = its_state or state == flow.state
  end
  return its_state and (wanted.name == nil or wanted.name == flow.name)
    and (wanted.key == nil or wanted.key == flow.key)
    and (wanted.tenant == nil or wanted.tenant == flow.tenant)
end

local answer, read, looked = { '' }, 0, 0
while 2 * looked < #some and (#answer - 1) / 3 < limit and read < PARTS do
  looked = looked + 1
  local id = some[2 * looked - 1]
  local flow = flows.get(id)
  if flow and fits(flow) then
    local records = {}
    for i, part in ipairs(flows.all_parts(flow)) do
      records[i] = flows.pack_part(part)
    end
    answer[#answer + 1] = id
    answer[#answer + 1] = redis.call('HGET', prefix .. 'flows', id)
    answer[#answer + 1] = table.concat(records)
    read = read + flow.size
  end
  cache.parts = nil
end
if 2 * looked < #some or #some == 2 * tonumber(ARGV[4]) then
  answer[1] = some[2 * looked] or ''
end
return answer
