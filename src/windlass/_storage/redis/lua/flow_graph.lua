-- FlowStore.graph.
-- ARGV: id. Answer: its record, the records of its parts one after the other, then of each msgpack [name, task,
-- what it waits for]; nothing if it is not stored.
-- use: flows
-- reads only

local flow = flows.get(ARGV[1])
if not flow then
  return {}
end
local keys = {}
for number = 0, flow.size - 1 do
  keys[#keys + 1] = flows.part_key(flow.id, number)
end
local answer = {
  redis.call('HGET', prefix .. 'flows', flow.id), table.concat(read_all('HMGET', prefix .. 'parts', keys)),
}
for _, plan in ipairs(read_all('HMGET', prefix .. 'plans', keys)) do
  answer[#answer + 1] = plan
end
return answer
