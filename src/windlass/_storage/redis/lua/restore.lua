-- CopyStore.restore.
-- ARGV: things, each packed by msgpack; copy/restore.py says what is in them.
-- Answer: 'new' and how many were; or 'limit', an undefined name, and the names that are:
-- nothing is stored. Or 'flow' and the id of one that is missing.
-- use: storing brakes audits events

local things, bodies = {}, {}
for i, item in ipairs(ARGV) do
  things[i] = cmsgpack.unpack(item)
  if things[i][1] == 'job' then
    bodies[#bodies + 1] = ''
    bodies[#bodies + 1] = things[i][2]
  end
end
local new = read_new(bodies)
local refusal = unknown_limit(new)
for _, thing in ipairs(things) do
  if thing[1] == 'limit' and not spec_of(thing[2]) then
    refusal = { 'limit', thing[2], unpack(redis.call('HKEYS', prefix .. 'limits')) }
  end
end

local restore, place = {}, 0

-- --- flows ---

-- The first flow of a member that is neither stored nor among these; nil: there is none.
local function missing_flow()
  local known = {}
  for _, thing in ipairs(things) do
    if thing[1] == 'flow' then
      known[thing[2].id] = true
    elseif thing[1] == 'job' and thing[4].member then
      local flow = string.sub(thing[4].member.part, 1, 16)
      if not known[flow] and redis.call('HEXISTS', prefix .. 'flows', flow) == 0 then
        return flow
      end
    end
  end
end

-- A flow without its jobs. Its parts come as they are stored, with the counts of these.
function restore.flow(thing)
  local flow, records, plans, feeds = unpack(thing, 2)
  if flows.get(flow.id) then
    return false
  end
  flows.require_layout()
  flow.number, flow.swept, flow.swept_to = redis.call('INCR', prefix .. 'flow_seq'), 0, 0
  redis.call('ZADD', prefix .. 'flow_numbers', flow.number, flow.id)
  wide('HSET', prefix .. 'parts', records, 2)
  wide('HSET', prefix .. 'plans', plans, 2)
  wide('HSET', prefix .. 'feeds', feeds, 2)
  for at = 1, #records, 2 do
    local added = cmsgpack.unpack(plans[at + 1])[4]
    if added then
      redis.call('HSET', prefix .. 'flows_added', flows.unhex(added[1]), flows.part_key(flow.id, added[2]))
    end
    local part = flows.unpack_part(records[at], records[at + 1])
    if part.due == 1 then
      redis.call('ZADD', prefix .. 'settle', flow.number, part.key)
    end
  end
  if flow.state ~= flows.RUNNING then
    redis.call('ZADD', prefix .. 'flows_ended:' .. flow.state, flow.ended, flow.id)
  else
    redis.call('ZADD', prefix .. 'flows_running', flow.created, flow.id)
    if flow.key and not (flow.sealed and flow.cancelled) then
      redis.call('HSETNX', prefix .. 'flow_keys', flow.key, flow.id)
    end
    if flow.cancelled then
      redis.call('ZADD', prefix .. 'settle', 0, flow.id)
    end
  end
  if flow.retried then
    redis.call('SADD', prefix .. 'flows_retried', flow.id)
  end
  flows.expect_expiry(flow)
  flows.save(flow)
  return true
end

-- The record of a member: see `join_part` in storing.lua.
local function member_record(asked, member)
  return string.char(members.RECORD) .. string.sub(asked, 2, 19) .. string.char(members.SORT)
    .. string.sub(asked, 21) .. '\196\39' .. member.asks
    .. members.pack(member.part, member.added, member.held == 'blocked')
end

-- Put a member where it was in its part, which counts it already.
local function join_part(job, member)
  redis.call('ZADD', prefix .. 'members:' .. job.part, job.seq, job.added and job.id .. 'a' or job.id)
  if member.held then
    redis.call('ZADD', prefix .. member.held .. ':' .. job.part, job.seq, job.id)
  end
  if job.blocked then
    members.count_blocked(job.queue, 1)
  end
end

-- --- jobs ---

-- It is running, under the worker it names: none here, so that the next sweep ends the claim.
local function hold(job)
  redis.call('SADD', prefix .. 'running:' .. job.worker, job.id)
  redis.call('SADD', prefix .. 'holders', job.worker)
  local special = special_of(job)
  for _, use in ipairs(special and special[4] or {}) do
    redis.call('SADD', prefix .. 'holds:' .. gate_of(use), job.id)
    redis.call('HSETNX', prefix .. 'gates:' .. use[1], use[2], '')
  end
end

local function keep_rest(job, rest)
  for field, text in pairs(rest.fields) do
    redis.call('HSET', prefix .. field, job.id, text)
  end
  if #rest.history > 0 then
    redis.call('RPUSH', prefix .. 'history:' .. job.id, unpack(rest.history))
  end
  for at = 1, #rest.logs, 2 do
    redis.call('HSET', prefix .. 'logs:' .. job.id, rest.logs[at], rest.logs[at + 1])
    redis.call('SADD', prefix .. 'journal', job.id)
  end
  local special = special_of(job)
  if rest.held and special and special[1] ~= '' and not key_holder(special[1]) then
    redis.call('HSET', prefix .. 'keys', special[1], struct.pack('>c16d', job.id, rest.held_until))
  end
end

function restore.job(thing)
  place = place + 1
  local id, body, state, rest = new.ids[place], thing[2], thing[3], thing[4]
  if new.known[id] then
    return false
  end
  new.known[id] = true
  local seq = redis.call('INCR', prefix .. 'seq')
  local asked = struct.pack(
    NEW_HEAD, 157, INT, state.created, INT, state.expires, INT, seq, INT, state.due
  ) .. body
  if rest.member then
    asked = member_record(asked, rest.member)
  end
  redis.call('HSET', prefix .. 'jobs', id, asked)
  redis.call('ZADD', prefix .. 'all', seq, id)
  if is_odd(id, state.created) then
    redis.call('ZADD', prefix .. 'odd', 0, id)
  end
  local job = parse_job(id, asked, false)
  for name, value in pairs(state) do
    job[name] = value
  end
  mark(job, FREES, job.number > 0 and job.marks % 4 > 0)
  if rest.touched then
    save_job(job)
  end
  keep_rest(job, rest)
  count(job.queue, job.state, 1)
  if rest.member then
    join_part(job, rest.member)
  end
  if job.blocked then
    return true
  elseif job.state == WAITING then
    join_line(job)
  elseif job.state == RUNNING then
    hold(job)
  else
    redis.call('ZADD', ended_line(ended_as(job), job.queue), job.finished, id)
    note_ended(ended_as(job), job.queue, job.finished)
  end
  return true
end

-- --- what is not of one job ---

function restore.rollup(thing)
  local minute, whose, numbers = thing[2], thing[3], thing[4]
  local key, is_new = prefix .. 'copied:' .. minute, true
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, #whose) == whose then
      redis.call('HDEL', key, field)
      is_new = false
    end
  end
  for at = 1, #numbers, 2 do
    redis.call('HSET', key, whose .. numbers[at], string.format('%.0f', numbers[at + 1]))
  end
  redis.call('ZADD', prefix .. 'rollups', minute, minute)
  return is_new
end

function restore.queue(thing)
  local queue, settings, paused, till, hits, most = unpack(thing, 2)
  local brake = brake_of(queue) or { till = 0, hits = 0, most = 0 }
  local same = (redis.call('HGET', prefix .. 'settings', queue) or '') == settings
    and (redis.call('SISMEMBER', prefix .. 'paused', queue) == 1) == paused
    and brake.till == till and brake.hits == hits and brake.most == most
  if settings == '' then
    redis.call('HDEL', prefix .. 'settings', queue)
  else
    redis.call('HSET', prefix .. 'settings', queue, settings)
  end
  redis.call(paused and 'SADD' or 'SREM', prefix .. 'paused', queue)
  set_brake(queue, till, hits, most)
  return not same
end

function restore.limit(thing)
  local name, key, till, failures, opened, open_till = unpack(thing, 2)
  local gate, budgets = gate_of({ name, key }), prefix .. 'gates:' .. name
  local breaker = breaker_of(gate)
  if redis.call('HGET', budgets, key) == till and breaker[1] == failures
    and breaker[2] == opened and breaker[3] == open_till then
    return false
  end
  redis.call('HSET', budgets, key, till)
  cache.spent[gate] = nil
  cache.breakers[gate] = { failures, opened, open_till }
  if failures > 0 then
    local record = struct.pack('>I4I4d', failures, opened, open_till)
    redis.call('HSET', prefix .. 'breakers', gate, record)
  else
    redis.call('HDEL', prefix .. 'breakers', gate)
  end
  open_gate(gate) -- lanes that wait for it ask again
  return true
end

function restore.audit(thing)
  return audits.keep(thing[2], thing[3], '', thing[4])
end

function restore.event(thing)
  local id, at, record = thing[2], thing[3], thing[4]
  if redis.call('HEXISTS', prefix .. 'jobs', id) == 0 then
    return false
  end
  for _, kept in ipairs(redis.call('HVALS', prefix .. 'events:' .. id)) do
    if kept == record then
      return false
    end
  end
  events.keep(id, at, record)
  return true
end

if refusal then
  return refusal
end
local missing = missing_flow()
if missing then
  return { 'flow', missing }
end
local number = 0
for _, thing in ipairs(things) do
  if restore[thing[1]](thing) then
    number = number + 1
  end
end
settle()
wake()
return { 'new', number }
