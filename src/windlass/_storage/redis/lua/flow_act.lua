-- FlowStore.act.
-- ARGV: note, 'cancel' or 'retry', ids of flows. Answer: one character for each, as order.lua gives them.
-- use: orders settling audits

local AT_ONCE = 500 -- members read together

-- Requeue what failed, was cancelled or has expired. What its flow ended comes back with its flow.
local function requeue_members(part)
  local all = redis.call('ZRANGE', prefix .. 'members:' .. part.key, 0, -1)
  for first = 1, #all, AT_ONCE do
    local ids = {}
    for at = first, math.min(first + AT_ONCE - 1, #all) do
      ids[#ids + 1] = string.sub(all[at], 1, 16)
    end
    for _, job in ipairs(load_jobs(ids)) do
      if job and job.state > SUCCEEDED then
        orders.requeue(job)
      end
    end
  end
end

local acts = {}

function acts.cancel(flow)
  if flow.state ~= flows.RUNNING then
    return WRONG_STATE
  end
  settling.cancel(flow)
  return DONE
end

function acts.retry(flow)
  if flow.sealed or flow.state == flows.RUNNING or flow.state == flows.SUCCEEDED then
    return WRONG_STATE
  elseif flow.key and redis.call('HEXISTS', prefix .. 'flow_keys', flow.key) == 1 then
    return CONFLICT
  end
  flow.cancelled, flow.swept, flow.swept_to = false, 0, 0
  redis.call('ZREM', prefix .. 'settle', flow.id)
  flows.save(flow)
  local all = flows.all_parts(flow)
  for _, part in ipairs(all) do
    flows.spread(part)
  end
  for _, part in ipairs(all) do
    if part.kind == parts.JOBS then
      requeue_members(part)
    end
  end
  members.flush()
  settling.reopen(flow)
  return DONE
end

-- --- run ---

local note, action = table.remove(ARGV, 1), table.remove(ARGV, 1)
local known, _, given = audits.known(note)
if known then
  return given
end
local answers, effects = {}, 0
for i, id in ipairs(ARGV) do
  local flow = flows.get(id)
  answers[i] = flow and acts[action](flow) or UNKNOWN_JOB
  effects = effects + (answers[i] == DONE and 1 or 0)
end
local told = table.concat(answers)
audits.keep(note, effects, told)
settle()
if effects > 0 then
  wake()
end
return told
