-- FlowStore.start.
-- ARGV: how long before its end a sealed flow gives its key up; of each flow the strings that new_flows.lua says.
-- Answer: for each flow '' (stored), '=' (stored before), or the id of the running flow that holds its key.
-- Or, as insert.lua: 'limit', 'key' or 'id', and nothing is stored.
-- use: new_flows

local spare = tonumber(table.remove(ARGV, 1))

-- The flow that holds a key, if it gives it up: the rest of it does not come.
local function given_up(id)
  local flow = id and flows.get(id)
  return flow and flows.is_held(flow) and flow.expires <= after(now, spare) and flow
end

-- The flows that are to be stored, with their places among the answers, and those that give their keys up.
local function read_flows(answers)
  local all, gone, keys, ids, at = {}, {}, {}, {}, 1
  while at <= #ARGV do
    local wanted
    wanted, at = new_flows.read(ARGV, at)
    local id, key = wanted.flow.id, wanted.flow.key
    local stored = key and redis.call('HGET', prefix .. 'flow_keys', key)
    local late = given_up(stored)
    local holder = key and (keys[key] or not late and stored)
    if ids[id] or new_flows.is_known(id) then
      answers[#answers + 1] = '='
    elseif holder then
      answers[#answers + 1] = holder
    else
      answers[#answers + 1] = ''
      ids[id] = true
      if key then
        keys[key] = id
      end
      gone[#gone + 1] = late or nil
      all[#all + 1] = wanted
    end
  end
  return all, gone
end

-- The strings of all jobs, and their memberships, which count in their parts.
local function gather_jobs(all)
  local items, joins = {}, {}
  for _, wanted in ipairs(all) do
    new_flows.make_parts(wanted, wanted.flow, 0)
    new_flows.join_jobs(wanted, joins, false)
    for i = 1, 2 * wanted.many do
      items[#items + 1] = ARGV[wanted.first + i - 1]
    end
  end
  return items, joins
end

local answers = {}
local all, gone = read_flows(answers)
local items, joins = gather_jobs(all)
local new = read_new(items)
local refusal = unknown_limit(new) or new_members.conflict(new)
if refusal then
  return refusal
elseif #all == 0 then
  return answers
end
flows.require_layout()
for _, flow in ipairs(gone) do
  settling.cancel(flow)
end
for _, wanted in ipairs(all) do
  new_flows.keep(wanted)
end
local _, queues = store_new(new, joins)
for _, wanted in ipairs(all) do
  new_flows.begin(wanted)
end
settle()
wake(queues)
return answers
