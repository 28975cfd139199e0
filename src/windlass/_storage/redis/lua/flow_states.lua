-- FlowStore.states.
-- ARGV: ids of flows. Answer: the state of each, or nothing if it is not stored.
-- use: flows
-- reads only

local answer = {}
for i, id in ipairs(ARGV) do
  local flow = flows.get(id)
  answer[i] = flow and flow.state or false
end
return answer
