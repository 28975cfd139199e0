-- FlowStore.extend.
-- ARGV: id of the flow, 1 if these are its last jobs or 0, how long it may stay sealed, the numbers of the
-- jobs' parts (4 bytes each), then two strings for each job as storing.lua says.
-- Answer: 1, or 0 (the flow is not there, or was cancelled). Or, as flow_start.lua: why nothing is stored.
-- use: storing settling new_members

-- Whether jobs of this part that come with the last ones start at once: the flow is whole, and the part waits for
-- nothing. Jobs from before follow in portions, and go before these.
local function starts(part)
  return part.waiting == 0 and parts.decide(part, false) == 'open'
end

-- The memberships of these jobs, which count in their parts. All of them are blocked, but for some of the last ones.
local function join_all(flow, numbers, last)
  local joins, many, membership_of = { since = flow.created }, {}, {}
  for i = 1, #numbers / 4 do
    joins[i] = struct.unpack('>I4', numbers, 4 * i - 3)
    many[joins[i]] = (many[joins[i]] or 0) + 1
  end
  for number, more in pairs(many) do
    local part = flows.part(flows.part_key(flow.id, number))
    local waits = not last or not starts(part)
    part.total, part.open, part.blocked = part.total + more, part.open + more, part.blocked + (waits and more or 0)
    pending.parts[part.key] = part
    membership_of[number] = members.pack(part.key, false, waits)
  end
  for i, number in ipairs(joins) do
    joins[i] = membership_of[number]
  end
  return joins
end

local function unseal(flow)
  flow.sealed = false
  for _, part in ipairs(flows.all_parts(flow)) do
    flows.spread(part)
  end
end

local id, last, stays, numbers = table.remove(ARGV, 1), table.remove(ARGV, 1) == '1',
  tonumber(table.remove(ARGV, 1)), table.remove(ARGV, 1)
local flow = flows.get(id)
if not flow then
  return 0
end
local new = read_new(ARGV)
if new.known[new.ids[1]] then
  return 1 -- a repeated call
elseif flow.cancelled or not flow.sealed then
  return flow.cancelled and 0 or 1
end
local refusal = unknown_limit(new) or new_members.conflict(new)
if refusal then
  return refusal
end
local joins = join_all(flow, numbers, last)
local _, queues = store_new(new, joins)
redis.call('ZREM', prefix .. 'settle', 'x' .. flow.id)
flow.expires = flows.expiry(last and flow.lasts or stays)
flows.expect_expiry(flow)
if last then
  unseal(flow)
end
flows.save(flow)
settle()
wake(queues)
return 1
