-- Flows and their parts as they are stored, and how the end of a member travels through the graph.
--
-- Scripts say which members end or come back (`members.ended`, `members.come_back`). `members.flush` counts all of
-- them, and `settle` writes the parts: one read and one write for each part, however many jobs.
-- use: jobs parts layouts

local flows = {
  RUNNING = 0, SUCCEEDED = 1, FAILED = 2, CANCELLED = 3, -- states
  PART_FORMAT = '>BBBBI4I4I4I4I4I4I4I4I4I4I4I4I4I4I4',
  PART_SIZE = 64, -- bytes
  FIRST_INSTANT = 1e12, -- in `settle`, scores from here on are instants; the numbers of flows are smaller
  LAYOUT = 4, -- the first that knows flows
}

-- Refuse older processes from now on: they would end members without counting them.
function flows.require_layout()
  require_layout(flows.LAYOUT)
end

-- --- records ---

function flows.part_key(flow, number)
  return struct.pack('>c16I4', flow, number)
end

-- An id as its digits, and back: plans are read by others, too.
function flows.hex(id)
  return (string.gsub(id, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

function flows.unhex(digits)
  return (string.gsub(digits, '..', function(two) return string.char(tonumber(two, 16)) end))
end

-- The flow with this id, read once; false: it is not stored. key and tenant are false where there is none,
-- expires and ended 0. swept and swept_to: the part, and the job number there, that a cancel has reached. size:
-- how many parts. lasts: the time that the flow has from its start, or from when it runs again; -1: it does not
-- expire. sealed: not all jobs are stored. grown: flows were added to it, and ranks, not numbers, are the order of
-- its parts. retried and retried_to: the rank of the part, and the job number there, that a retry has reached;
-- retried is false where none is under way. end_at: the number of its end, or nil: see `flows.end_of`.
function flows.get(id)
  local flow = cache.flows[id]
  if flow == nil then
    local packed = redis.call('HGET', prefix .. 'flows', id)
    local values = packed and cmsgpack.unpack(packed)
    flow = packed and {
      id = id, number = values[1], name = values[2], key = values[3], tenant = values[4], created = values[5],
      expires = values[6], state = values[7], ended = values[8], cancelled = values[9], swept = values[10],
      swept_to = values[11], size = values[12], lasts = values[13], sealed = values[14],
      grown = values[15], retried = values[16] or false, retried_to = values[17] or 0, end_at = values[18],
    }
    cache.flows[id] = flow
  end
  return flow
end

function flows.save(flow)
  cache.flows[flow.id] = flow
  redis.call('HSET', prefix .. 'flows', flow.id, cmsgpack.pack({
    flow.number, flow.name, flow.key, flow.tenant, flow.created, flow.expires, flow.state, flow.ended,
    flow.cancelled, flow.swept, flow.swept_to, flow.size, flow.lasts, flow.sealed or false,
    flow.grown or false, flow.retried or false, flow.retried_to or 0, flow.end_at,
  }))
end

-- A part, as parts.lua says. listed: whether `settle` has it, 1 or 0.
function flows.unpack_part(key, packed)
  local kind, on, told, due, total, open, blocked, succeeded, failed, cancelled, stopped, skipped, waiting,
    broken, unneeded, adding, added_broken, first, counts_for = struct.unpack(
      flows.PART_FORMAT, packed .. string.rep('\0', flows.PART_SIZE - #packed)
    )
  return {
    key = key, flow = string.sub(key, 1, 16), listed = due, kind = kind, on = on, told = told, due = due,
    total = total, open = open, blocked = blocked, succeeded = succeeded, failed = failed,
    cancelled = cancelled, stopped = stopped, skipped = skipped, waiting = waiting, broken = broken,
    unneeded = unneeded, adding = adding, added_broken = added_broken, first = first,
    counts_for = counts_for,
  }
end

function flows.pack_part(part)
  return struct.pack(
    flows.PART_FORMAT, part.kind, part.on, part.told, part.due, part.total, part.open, part.blocked,
    part.succeeded, part.failed, part.cancelled, part.stopped, part.skipped, part.waiting, part.broken,
    part.unneeded, part.adding, part.added_broken, part.first, part.counts_for
  )
end

-- The parts with these keys, each read once; false where one is not stored.
function flows.parts(keys)
  local missing, found = {}, {}
  for _, key in ipairs(keys) do
    if cache.parts[key] == nil then
      missing[#missing + 1] = key
    end
  end
  for i, packed in ipairs(read_all('HMGET', prefix .. 'parts', missing)) do
    cache.parts[missing[i]] = packed and flows.unpack_part(missing[i], packed)
  end
  for i, key in ipairs(keys) do
    found[i] = cache.parts[key]
  end
  return found
end

function flows.part(key)
  return flows.parts({ key })[1]
end

-- Of the flow that a job added a part with, the number of its first part; 0: no job did, or it is one of the last.
function flows.first_of(part)
  return flows.is_last(part) and 0 or part.first
end

-- The same without reading all of the part.
function flows.glance_first(key, packed)
  if cache.parts[key] then
    return flows.first_of(cache.parts[key])
  end
  local kind = string.byte(packed)
  if #packed < flows.PART_SIZE or kind == parts.END or kind == parts.CALLBACK then
    return 0
  end
  return (struct.unpack('>I4', packed, flows.PART_SIZE - 7))
end

-- Whether a part waits for others, or for the rest of its flow.
function flows.waits(key)
  local waits = cache.waits[key]
  if waits == nil then
    waits = flows.get(string.sub(key, 1, 16)).sealed
      or #cmsgpack.unpack(redis.call('HGET', prefix .. 'plans', key))[3] > 0
    cache.waits[key] = waits
  end
  return waits
end

-- All parts of a flow, by number from 1 on.
function flows.all_parts(flow)
  local keys = {}
  for number = 0, flow.size - 1 do
    keys[#keys + 1] = flows.part_key(flow.id, number)
  end
  return flows.parts(keys)
end

-- The same in the order of the graph.
function flows.in_order(flow)
  local all, groups, added = flows.all_parts(flow), { drawn = {}, last = {} }, {}
  if not flow.grown then
    return all
  end
  for _, part in ipairs(all) do
    local group = flows.is_last(part) and groups.last or groups.drawn
    if flows.first_of(part) > 0 then
      group = groups[part.first] or {}
      if #group == 0 then
        groups[part.first] = group
        table.insert(added, group)
      end
    end
    group[#group + 1] = part
  end
  local ordered = {}
  local function take(group)
    for _, part in ipairs(group) do
      ordered[#ordered + 1] = part
    end
  end
  for i = #added, 1, -1 do -- what was added later comes first
    take(added[i])
  end
  take(groups.drawn)
  take(groups.last)
  return ordered
end

-- The last part but callbacks. Flows that an older version has stored do not say where it is.
function flows.end_of(flow)
  if not flow.end_at then
    for _, part in ipairs(flows.all_parts(flow)) do
      if part.kind == parts.END then
        flow.end_at = struct.unpack('>I4', part.key, 17)
      end
    end
  end
  return flows.part(flows.part_key(flow.id, flow.end_at))
end

-- Whether a part comes behind all others of its flow.
function flows.is_last(part)
  return part.kind == parts.END or part.kind == parts.CALLBACK
end

-- --- what changes at a part ---

-- Remember the part, and whether something is to be done about its jobs.
function flows.look(part)
  part.due = parts.is_due(part, flows.get(part.flow).cancelled) and 1 or 0
  pending.parts[part.key] = part
end

-- Make `settle` follow the parts that this call has changed.
function flows.list_due()
  for key, part in pairs(pending.parts) do
    if part.due ~= part.listed then
      part.listed = part.due
      if part.due == 1 then
        redis.call('ZADD', prefix .. 'settle', flows.get(part.flow).number, key)
        if flows.first_of(part) > 0 then
          cache.without_added[part.flow] = nil
        end
      else
        redis.call('ZREM', prefix .. 'settle', key)
      end
    end
  end
end

-- Let others have the key of a flow, if it holds it.
function flows.free_key(flow)
  if flow.key and redis.call('HGET', prefix .. 'flow_keys', flow.key) == flow.id then
    redis.call('HDEL', prefix .. 'flow_keys', flow.key)
  end
end

-- The flow's last part has ended, or does not stay ended.
function flows.finish(flow, told)
  local before = flow.state
  if not has(told, OVER) then
    if before ~= flows.RUNNING then
      flow.expires = flows.expiry(flow.lasts)
    end
    flow.state, flow.ended = flows.RUNNING, 0
    redis.call('ZADD', prefix .. 'flows_running', flow.created, flow.id)
    if flow.key then
      redis.call('HSETNX', prefix .. 'flow_keys', flow.key, flow.id)
    end
  else
    local failed = flow.cancelled and flows.CANCELLED or flows.FAILED
    flow.state, flow.ended = has(told, BROKEN) and failed or flows.SUCCEEDED, now
    flows.free_key(flow)
    redis.call('ZADD', prefix .. 'flows_ended:' .. flow.state, now, flow.id)
    redis.call('ZREM', prefix .. 'flows_running', flow.id)
  end
  if before ~= flows.RUNNING and before ~= flow.state then
    redis.call('ZREM', prefix .. 'flows_ended:' .. before, flow.id)
  end
  flows.expect_expiry(flow)
  flows.save(flow)
end

-- The instant after this time; 0: never, for -1.
function flows.expiry(time)
  return time < 0 and 0 or after(now, time)
end

-- A flow that runs is cancelled when it expires.
function flows.expect_expiry(flow)
  if flow.expires > 0 then
    local may_expire = flow.state == flows.RUNNING and not flow.cancelled
    redis.call(may_expire and 'ZADD' or 'ZREM', prefix .. 'settle',
      unpack(may_expire and { flow.expires, 'x' .. flow.id } or { 'x' .. flow.id }))
  end
end

-- Whether nothing of a flow may happen before it is whole.
function flows.is_held(flow)
  return flow.sealed and not flow.cancelled
end

-- Whether a retry has not reached all jobs of a part.
function flows.is_returning(flow, part)
  return flow.retried and part.kind == parts.JOBS and parts.rank(part) >= flow.retried
end

-- Pass on what has changed at a part, as far as parts without jobs pass it on themselves. Nothing else
-- happens to jobs here: parts that are due now are remembered.
function flows.spread(first)
  local changed = { first }
  pending.parts[first.key] = first
  if flows.is_held(flows.get(first.flow)) then
    return
  end
  while #changed > 0 do
    local part = table.remove(changed)
    local flow, before = flows.get(part.flow), part.told
    local told = parts.tidings(part, flow.cancelled, flows.is_returning(flow, part))
    if told ~= before then
      part.told = told
      local feeds = redis.call('HGET', prefix .. 'feeds', part.key) or ''
      local keys, strict = {}, {}
      for at = 1, #feeds, 5 do
        local number, counts = struct.unpack('>I4B', feeds, at)
        keys[#keys + 1], strict[#strict + 1] = flows.part_key(part.flow, number), counts == 1
      end
      for i, follower in ipairs(flows.parts(keys)) do
        parts.learn(follower, before, told, strict[i])
        changed[#changed + 1] = follower
      end
      if part.counts_for > 0 then
        local counted = flows.part(flows.part_key(part.flow, part.counts_for - 1))
        parts.learn_added(counted, before, told)
        changed[#changed + 1] = counted
      end
      if part.kind == parts.END then
        flows.finish(flow, told)
      end
    end
    flows.look(part)
  end
end

-- --- members ---

-- Add to one of the counts of a part.
function members.count(part, field, by)
  local counts = pending.members[part]
  if not counts then
    counts = {}
    pending.members[part] = counts
  end
  counts[field] = (counts[field] or 0) + by
end

-- Add to how many jobs of a queue are blocked.
function members.count_blocked(queue, by)
  pending.blocked[queue] = (pending.blocked[queue] or 0) + by
end

-- The job has ended: `how` is a count of its part. Nothing, if it is no member.
function members.ended(job, how)
  if job.part then
    members.count(job.part, how, 1)
    members.count(job.part, 'open', -1)
    if how == 'stopped' or how == 'skipped' then
      redis.call('ZADD', prefix .. how .. ':' .. job.part, job.seq, job.id)
    end
  end
end

-- A blocked job is not blocked any more.
function members.unblock(job)
  redis.call('ZREM', prefix .. 'blocked:' .. job.part, job.id)
  members.count(job.part, 'blocked', -1)
  members.count_blocked(job.queue, -1)
  job.blocked = false
end

-- A job is blocked. Its record says so.
function members.block(job)
  redis.call('ZADD', prefix .. 'blocked:' .. job.part, job.seq, job.id)
  members.count(job.part, 'blocked', 1)
  members.count_blocked(job.queue, 1)
end

-- As what the part counts an ended member that its flow has not ended.
function members.ended_as(state)
  return state == SUCCEEDED and 'succeeded' or state == FAILED and 'failed' or 'cancelled'
end

-- Why an ended member must not be requeued: 'flow' (it comes back with its flow), 'key' (another running
-- flow holds the key of its flow); nil: it may be.
function members.stays_ended(job)
  local flow = flows.get(string.sub(job.part, 1, 16))
  if flow and flow.key then
    members.flush() -- the same call may have brought a flow back that takes the key
  end
  if not flow or flow.cancelled or redis.call('ZSCORE', prefix .. 'stopped:' .. job.part, job.id)
    or redis.call('ZSCORE', prefix .. 'skipped:' .. job.part, job.id) then
    return 'flow'
  end
  local holder = flow.key and redis.call('HGET', prefix .. 'flow_keys', flow.key)
  return holder and holder ~= flow.id and 'key' or nil
end

-- An ended member is open again: it is requeued. It is to be blocked if its part waits for others, which may
-- be open again or have failed.
function members.come_back(job)
  members.count(job.part, members.ended_as(job.state), -1)
  members.count(job.part, 'open', 1)
  job.blocked = flows.waits(job.part)
end

-- Whether jobs of this part must not start any more.
function members.are_stopped(part)
  local flow = flows.get(string.sub(part, 1, 16))
  local its = flow and flow.cancelled and flows.part(part)
  return its and its.kind == parts.JOBS
end

-- The same for the asked record of any job.
function members.is_stopped(asked)
  return string.byte(asked) == members.RECORD and members.are_stopped(string.sub(asked, -21, -2))
end

-- A record that cannot be read is taken away: its job has failed, as far as its part can be told. It stays
-- in the list of the part's members.
function members.bury(asked, kept)
  local _, _, _, _, _, queue, _, membership = glance(kept or '')
  if not membership and asked and #asked > 60 and string.byte(asked) == members.RECORD then
    membership = string.sub(asked, -21)
  end
  local state = kept and string.byte(kept) or WAITING
  if membership and state < SUCCEEDED and flows.part(string.sub(membership, 1, 20)) then
    local job = { queue = queue }
    members.read(job, membership)
    members.count(job.part, 'failed', 1)
    members.count(job.part, 'open', -1)
  end
end

-- Count what this call has ended or brought back, and let the parts after them know.
function members.flush()
  local counted = rawget(pending, 'members')
  if not counted then
    return
  end
  pending.members = nil
  for key, changes in pairs(counted) do
    local part = flows.part(key)
    if part and flows.get(part.flow) then
      for field, change in pairs(changes) do
        part[field] = part[field] + change
      end
      flows.spread(part)
    end
  end
end

-- Store the parts that this call has changed: each once.
function flows.write()
  members.flush()
  if rawget(pending, 'parts') then
    flows.list_due()
    local records = {}
    for key, part in pairs(pending.parts) do
      records[#records + 1], records[#records + 2] = key, flows.pack_part(part)
    end
    wide('HSET', prefix .. 'parts', records, 2)
    pending.parts = nil
  end
  if rawget(pending, 'blocked') then
    for queue, change in pairs(pending.blocked) do
      if change ~= 0 and redis.call('HINCRBY', prefix .. 'blocked', queue, change) == 0 then
        redis.call('HDEL', prefix .. 'blocked', queue)
      end
    end
    pending.blocked = nil
  end
end
