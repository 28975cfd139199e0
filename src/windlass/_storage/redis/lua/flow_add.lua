-- FlowStore.add.
-- ARGV: id of the running flow, then the strings of the new one that new_flows.lua says.
-- Answer: { 'added' }, or another answer of `AddAnswer`. Or, as insert.lua: 'limit' or 'id', and nothing is
-- stored.
-- use: new_flows

local flow = flows.get(table.remove(ARGV, 1))
local wanted = new_flows.read(ARGV, 1)
local id = wanted.flow.id

-- Why it is not added; nil: it is.
local function refusal()
  if not flow then
    return { 'unknown' }
  end
  local place = redis.call('HGET', prefix .. 'flows_added', id)
  if place and string.sub(place, 1, 16) == flow.id then
    return { 'repeated' }
  elseif new_flows.is_known(id) then
    return { 'id', id }
  elseif flow.state ~= flows.RUNNING or flow.cancelled or (flow.expires > 0 and flow.expires <= now) then
    return { 'ended' }
  elseif flow.sealed then
    return { 'sealed' }
  end
end

local refused = refusal()
if refused then
  return refused
end
local new = read_new(new_flows.jobs(wanted))
refused = unknown_limit(new) or new_members.conflict(new)
if refused then
  return refused
end
new_flows.join(wanted, new, flows.end_of(flow))
settle()
wake()
return { 'added' }
