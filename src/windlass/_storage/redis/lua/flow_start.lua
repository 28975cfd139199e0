-- FlowStore.start.
-- ARGV: of each flow msgpack [id, name, key or false, tenant or false, expires or -1, false or how long it may stay
-- sealed, parts, number of jobs], the numbers of its jobs' parts (4 bytes each), then two strings for each job as storing.lua says. A part is
-- [name, kind, task, 1 if it runs on failure or 0, [[part, strict], ...]].
-- Answer: for each flow '' (stored), '=' (stored before), or the id of the running flow that holds its key.
-- Or, as insert.lua: 'limit', 'key' or 'id', and nothing is stored.
-- use: storing settling new_members

-- The flows that are to be stored, with their places among the answers.
local function read_flows(answers)
  local wanted, keys, ids, at = {}, {}, {}, 1
  while at <= #ARGV do
    local id, name, key, tenant, expires, sealed, its_parts, many = unpack(cmsgpack.unpack(ARGV[at]))
    local holder = key and (keys[key] or redis.call('HGET', prefix .. 'flow_keys', key))
    if ids[id] or redis.call('HEXISTS', prefix .. 'flows', id) == 1 then
      answers[#answers + 1] = '='
    elseif holder then
      answers[#answers + 1] = holder
    else
      answers[#answers + 1] = ''
      ids[id] = true
      if key then
        keys[key] = id
      end
      wanted[#wanted + 1] = {
        flow = {
          id = id, name = name, key = key, tenant = tenant, created = now, state = flows.RUNNING,
          expires = flows.expiry(sealed or expires), ended = 0, cancelled = false, swept = 0,
          swept_to = 0, size = #its_parts, lasts = expires, sealed = sealed and true,
        },
        parts = its_parts, numbers = ARGV[at + 1], first = at + 2, many = many,
      }
    end
    at = at + 2 + 2 * many
  end
  return wanted
end

-- The parts of a flow as they are stored, without jobs; and who waits for each.
local function make_parts(wanted)
  local made, feeds = {}, {}
  for i, asked in ipairs(wanted.parts) do
    local part = {
      key = flows.part_key(wanted.flow.id, i - 1), flow = wanted.flow.id, held = wanted.flow.sealed, listed = 0, kind = asked[2],
      on = asked[4], told = 0, due = 0, total = 0, open = 0, blocked = 0, succeeded = 0, failed = 0,
      cancelled = 0, stopped = 0, skipped = 0, broken = 0, unneeded = 0,
      waiting = #asked[5],
    }
    for _, edge in ipairs(asked[5]) do
      feeds[edge[1] + 1] = (feeds[edge[1] + 1] or '') .. struct.pack('>I4B', i - 1, edge[2] and 1 or 0)
    end
    made[i] = part
  end
  return made, feeds
end

-- Whether the jobs of a new part start at once.
local function starts(part)
  return not part.held and part.waiting == 0 and parts.decide(part, false) == 'open'
end

-- The strings of all jobs, and their memberships, which count in their parts.
local function gather_jobs(all)
  local items, joins = {}, {}
  for _, wanted in ipairs(all) do
    wanted.made, wanted.feeds = make_parts(wanted)
    local membership_of, numbers = {}, wanted.numbers
    for i = 1, wanted.many do
      local number = struct.unpack('>I4', numbers, 4 * i - 3) + 1
      local part, membership = wanted.made[number], membership_of[number]
      if not membership then
        membership = members.pack(part.key, false, not starts(part))
        membership_of[number] = membership
      end
      part.total = part.total + 1
      local n = #joins + 1
      joins[n] = membership
      items[2 * n - 1], items[2 * n] = ARGV[wanted.first + 2 * i - 2], ARGV[wanted.first + 2 * i - 1]
    end
    for _, part in ipairs(wanted.made) do
      part.open, part.blocked = part.total, starts(part) and 0 or part.total
    end
  end
  return items, joins
end

local function keep_flow(wanted)
  local flow, plans, feeds = wanted.flow, {}, {}
  flow.number = redis.call('INCR', prefix .. 'flow_seq')
  redis.call('ZADD', prefix .. 'flow_numbers', flow.number, flow.id)
  if flow.key then
    redis.call('HSET', prefix .. 'flow_keys', flow.key, flow.id)
  end
  for i, part in ipairs(wanted.made) do
    local asked = wanted.parts[i]
    cache.parts[part.key] = part
    pending.parts[part.key] = part
    plans[#plans + 1] = part.key
    plans[#plans + 1] = cmsgpack.pack({ asked[1], asked[3], asked[5] })
    if wanted.feeds[i] then
      feeds[#feeds + 1] = part.key
      feeds[#feeds + 1] = wanted.feeds[i]
    end
  end
  wide('HSET', prefix .. 'plans', plans, 2)
  wide('HSET', prefix .. 'feeds', feeds, 2)
  flows.expect_expiry(flow)
  flows.save(flow)
end

-- What follows from the graph alone: parts without jobs pass on that they have ended.
local function begin_flow(wanted)
  for _, part in ipairs(wanted.made) do
    flows.spread(part)
  end
  for i, part in ipairs(wanted.made) do
    if not wanted.flow.sealed and #wanted.parts[i][5] == 0 and part.blocked > 0 then
      settling.part(part, part.blocked)
    end
  end
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
  keep_flow(wanted)
end
local _, queues = store_new(new, joins)
for _, wanted in ipairs(all) do
  begin_flow(wanted)
end
settle()
wake(queues)
return answers
