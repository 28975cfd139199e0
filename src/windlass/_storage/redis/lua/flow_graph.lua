-- FlowStore.graph.
-- ARGV: id. Answer: its record, the records of its parts one after the other, then of each msgpack [name, task,
-- what it waits for, what it was added as]; nothing if it is not stored.
-- use: flows
-- reads only

local flow = flows.get(ARGV[1])
if not flow then
  return {}
end
local keys, records = {}, {}
for i, part in ipairs(flows.all_parts(flow)) do
  keys[i], records[i] = part.key, flows.pack_part(part)
end
local answer = { redis.call('HGET', prefix .. 'flows', flow.id), table.concat(records) }
for _, plan in ipairs(read_all('HMGET', prefix .. 'plans', keys)) do
  answer[#answer + 1] = plan
end
return answer
