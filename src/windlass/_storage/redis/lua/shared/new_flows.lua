-- Flows that are stored: their parts, and the memberships of their jobs.
--
-- A flow that is asked for is a list of strings: msgpack [id, name, key or false, tenant or false, expires or -1,
-- false or how long it may stay sealed, parts, number of jobs, after]; the numbers of its jobs' parts (4 bytes each); then
-- two strings for each job as storing.lua says. A part is [name, kind, task, 1 if it runs on failure or 0,
-- [[part, strict], ...]]. after: of a flow that is added from outside, [part, strict] of the running flow that its
-- first parts wait for.
-- use: storing settling new_members

local new_flows = {}

-- Read the flow that begins at this place of a list. The answer, and the place behind it.
function new_flows.read(items, at)
  local id, name, key, tenant, expires, sealed, its_parts, many, after_parts = unpack(
    cmsgpack.unpack(items[at])
  )
  return {
    flow = {
      id = id, name = name, key = key, tenant = tenant, created = now, state = flows.RUNNING,
      expires = flows.expiry(sealed or expires), ended = 0, cancelled = false, swept = 0, swept_to = 0,
      size = #its_parts, lasts = expires, sealed = sealed and true, grown = false,
    },
    parts = its_parts, after = after_parts or {}, numbers = items[at + 1], items = items, first = at + 2, many = many,
  }, at + 2 + 2 * many
end

-- The strings of its jobs.
function new_flows.jobs(wanted)
  local items = {}
  for i = 1, 2 * wanted.many do
    items[i] = wanted.items[wanted.first + i - 1]
  end
  return items
end

-- Whether a flow with this id is stored, or was added to another one.
function new_flows.is_known(id)
  return redis.call('HEXISTS', prefix .. 'flows', id) == 1
    or redis.call('HEXISTS', prefix .. 'flows_added', id) == 1
end

-- Make its parts, without jobs, and note who waits for each. They belong to the flow `into`, from the number
-- `first` on.
function new_flows.make_parts(wanted, into, first)
  wanted.made, wanted.feeds = {}, {}
  for i, asked in ipairs(wanted.parts) do
    wanted.made[i] = {
      key = flows.part_key(into.id, first + i - 1), flow = into.id, held = into.sealed, listed = 0,
      kind = asked[2], on = asked[4], told = 0, due = 0, total = 0, open = 0, blocked = 0, succeeded = 0,
      failed = 0, cancelled = 0, stopped = 0, skipped = 0, broken = 0, unneeded = 0, adding = 0,
      added_broken = 0, first = 0, counts_for = 0, waiting = #asked[5],
    }
    for _, edge in ipairs(asked[5]) do
      wanted.feeds[edge[1] + 1] = (wanted.feeds[edge[1] + 1] or '')
        .. struct.pack('>I4B', first + i - 1, edge[2] and 1 or 0)
    end
  end
end

-- Whether the jobs of a new part start at once.
function new_flows.starts(part)
  return not part.held and part.waiting == 0 and parts.decide(part, false) == 'open'
end

-- The memberships of its jobs, behind those in `joins`. They count in their parts. `blocked`: all of them are.
function new_flows.join_jobs(wanted, joins, blocked)
  local membership_of, numbers = {}, wanted.numbers
  for i = 1, wanted.many do
    local number = struct.unpack('>I4', numbers, 4 * i - 3) + 1
    local part, membership = wanted.made[number], membership_of[number]
    if not membership then
      membership = members.pack(part.key, false, blocked or not new_flows.starts(part))
      membership_of[number] = membership
    end
    part.total = part.total + 1
    joins[#joins + 1] = membership
  end
  for _, part in ipairs(wanted.made) do
    local waits = blocked or not new_flows.starts(part)
    part.open, part.blocked = part.total, waits and part.total or 0
  end
  return joins
end

-- Store what does not change about its parts, and remember them.
function new_flows.keep_parts(wanted)
  local plans, feeds = {}, {}
  for i, part in ipairs(wanted.made) do
    local asked = wanted.parts[i]
    cache.parts[part.key] = part
    pending.parts[part.key] = part
    plans[#plans + 1] = part.key
    plans[#plans + 1] = cmsgpack.pack({ asked[1], asked[3], asked[5], asked.added })
    if wanted.feeds[i] then
      feeds[#feeds + 1] = part.key
      feeds[#feeds + 1] = wanted.feeds[i]
    end
  end
  wide('HSET', prefix .. 'plans', plans, 2)
  wide('HSET', prefix .. 'feeds', feeds, 2)
end

function new_flows.keep(wanted)
  local flow = wanted.flow
  flow.number = redis.call('INCR', prefix .. 'flow_seq')
  for i, asked in ipairs(wanted.parts) do
    flow.end_at = asked[2] == parts.END and i - 1 or flow.end_at
  end
  redis.call('ZADD', prefix .. 'flow_numbers', flow.number, flow.id)
  redis.call('ZADD', prefix .. 'flows_running', flow.created, flow.id)
  if flow.key then
    redis.call('HSET', prefix .. 'flow_keys', flow.key, flow.id)
  end
  new_flows.keep_parts(wanted)
  flows.expect_expiry(flow)
  flows.save(flow)
end

-- What follows from the graph alone: parts without jobs pass on that they have ended.
function new_flows.begin(wanted)
  for _, part in ipairs(wanted.made) do
    flows.spread(part)
  end
  for i, part in ipairs(wanted.made) do
    if not wanted.flow.sealed and #wanted.parts[i][5] == 0 and part.blocked > 0 then
      settling.part(part, part.blocked)
    end
  end
end

-- Store a flow that is new, whose jobs were read.
function new_flows.start(wanted, new)
  flows.require_layout()
  new_flows.make_parts(wanted, wanted.flow, 0)
  local joins = new_flows.join_jobs(wanted, {}, false)
  new_flows.keep(wanted)
  store_new(new, joins)
  new_flows.begin(wanted)
end

-- Let the first parts of a flow that joins another one wait for parts there. What these have told by now counts.
function new_flows.wait_for_others(wanted, flow, first)
  local keys, followers = {}, {}
  for i, edge in ipairs(wanted.after) do
    keys[i], followers[i] = flows.part_key(flow.id, edge[1]), {}
  end
  local others = flows.parts(keys)
  for i, asked in ipairs(wanted.parts) do
    local made = wanted.made[i]
    if made.waiting == 0 then
      asked[5], made.waiting = wanted.after, #wanted.after
      for at, edge in ipairs(wanted.after) do
        parts.learn(made, 0, others[at].told, edge[2])
        table.insert(followers[at], struct.pack('>I4B', first + i - 1, edge[2] and 1 or 0))
      end
    end
  end
  local feeds = {}
  for i, key in ipairs(keys) do
    feeds[#feeds + 1] = key
    feeds[#feeds + 1] = (redis.call('HGET', prefix .. 'feeds', key) or '') .. table.concat(followers[i])
  end
  wide('HSET', prefix .. 'feeds', feeds, 2)
end

-- Let a flow join that of a part, which is not over before it. All of its jobs are blocked at first. `wanted` is
-- changed to what it is there.
function new_flows.join(wanted, new, part)
  local flow = flows.get(part.flow)
  local first, number = flow.size, struct.unpack('>I4', part.key, 17)
  new_flows.make_parts(wanted, flow, first)
  for i, asked in ipairs(wanted.parts) do
    local made = wanted.made[i]
    for _, edge in ipairs(asked[5]) do
      edge[1] = edge[1] + first
    end
    made.first = part.kind == parts.END and 0 or first
    if asked[2] == parts.END then
      made.kind, made.counts_for = parts.ADDED, number + 1
      asked[1], asked.added = wanted.flow.name, { flows.hex(wanted.flow.id), first, number }
    end
  end
  if #wanted.after > 0 then
    new_flows.wait_for_others(wanted, flow, first)
  end
  redis.call('HSET', prefix .. 'flows_added', wanted.flow.id, flows.part_key(flow.id, first))
  flow.size, flow.grown = first + #wanted.parts, true
  flows.save(flow)
  part.adding = part.adding + 1
  pending.parts[part.key] = part
  local joins = new_flows.join_jobs(wanted, {}, true)
  new_flows.keep_parts(wanted)
  store_new(new, joins)
  for _, made in ipairs(wanted.made) do
    flows.spread(made)
  end
end
