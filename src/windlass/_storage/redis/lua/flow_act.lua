-- FlowStore.act.
-- ARGV: note, 'cancel' or 'retry', how many members a retry lets come back at once, ids of flows.
-- Answer: one character for each flow, as order.lua gives them.
-- use: returning audits

local acts = {}

function acts.cancel(flow)
  if flow.state ~= flows.RUNNING then
    return WRONG_STATE
  end
  settling.cancel(flow)
  return DONE
end

function acts.retry(flow, at_once)
  if flow.sealed or flow.state == flows.RUNNING or flow.state == flows.SUCCEEDED then
    return WRONG_STATE
  elseif flow.key and redis.call('HEXISTS', prefix .. 'flow_keys', flow.key) == 1 then
    return CONFLICT
  end
  returning.begin(flow, at_once)
  return DONE
end

-- --- run ---

local note, action, at_once = table.remove(ARGV, 1), table.remove(ARGV, 1), tonumber(table.remove(ARGV, 1))
local known, _, given = audits.known(note)
if known then
  return given
end
local answers, effects = {}, 0
for i, id in ipairs(ARGV) do
  local flow = flows.get(id)
  answers[i] = flow and acts[action](flow, at_once) or UNKNOWN_JOB
  effects = effects + (answers[i] == DONE and 1 or 0)
end
local told = table.concat(answers)
audits.keep(note, effects, told)
settle()
if effects > 0 then
  wake()
end
return told
