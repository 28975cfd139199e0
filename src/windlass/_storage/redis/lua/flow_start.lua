-- FlowStore.start.
-- ARGV: of each flow the strings that new_flows.lua says.
-- Answer: for each flow '' (stored), '=' (stored before), or the id of the running flow that holds its key.
-- Or, as insert.lua: 'limit', 'key' or 'id', and nothing is stored.
-- use: new_flows

-- The flows that are to be stored, with their places among the answers.
local function read_flows(answers)
  local all, keys, ids, at = {}, {}, {}, 1
  while at <= #ARGV do
    local wanted
    wanted, at = new_flows.read(ARGV, at)
    local id, key = wanted.flow.id, wanted.flow.key
    local holder = key and (keys[key] or redis.call('HGET', prefix .. 'flow_keys', key))
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
      all[#all + 1] = wanted
    end
  end
  return all
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
local all = read_flows(answers)
local items, joins = gather_jobs(all)
local new = read_new(items)
local refusal = unknown_limit(new) or new_members.conflict(new)
if refusal then
  return refusal
elseif #all == 0 then
  return answers
end
flows.require_layout()
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
