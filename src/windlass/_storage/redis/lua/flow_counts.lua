-- FlowStore.counts.
-- Answer: how many flows run, have succeeded, failed and been cancelled; how many jobs are blocked; when the
-- running flow that was started first was started, or nothing.
-- use: flows
-- reads only

local answer, ended = {}, 0
for _, state in ipairs({ flows.SUCCEEDED, flows.FAILED, flows.CANCELLED }) do
  local some = redis.call('ZCARD', prefix .. 'flows_ended:' .. state)
  answer[state + 1] = some
  ended = ended + some
end
answer[1] = redis.call('ZCARD', prefix .. 'flow_numbers') - ended
local blocked = 0
for _, some in ipairs(redis.call('HVALS', prefix .. 'blocked')) do
  blocked = blocked + some
end
answer[5] = blocked
answer[6] = redis.call('ZRANGE', prefix .. 'flows_running', 0, 0, 'WITHSCORES')[2] or false
return answer
