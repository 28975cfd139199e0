-- FlowStore.prune.
-- ARGV: state of flows, age, how many jobs at most. Answer: how many were deleted, and 1 if there may be more.
-- A flow is marked first: it is not found any more. Its jobs follow, in portions; then what is known of it.
-- use: lines flows
-- runs when memory is full

local LOOKS = 1000 -- flows whose callbacks have not ended
local state, limit = tonumber(ARGV[1]), tonumber(ARGV[3])
local before = string.format('(%.0f', now - ARGV[2])

local function is_busy(flow)
  for _, part in ipairs(flows.all_parts(flow)) do
    if part.kind == parts.CALLBACK and part.open > 0 then
      return true
    end
  end
  return false
end

-- Mark the next flow; false: there is none.
local function mark_flow()
  local line = prefix .. 'flows_ended:' .. state
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', line, '-inf', before, 'LIMIT', 0, LOOKS)) do
    local flow = flows.get(id)
    if flow and not is_busy(flow) then
      redis.call('HSET', prefix .. 'flows_deleted', id, flow.size)
      redis.call('HDEL', prefix .. 'flows', id)
      redis.call('ZREM', prefix .. 'flow_numbers', id)
      redis.call('ZREM', line, id)
      redis.call('ZREM', prefix .. 'settle', id, 'x' .. id)
      return true
    end
  end
  return false
end

-- Delete jobs of a part; how many. Zero: it has none left.
local function delete_members(key, most)
  local some = redis.call('ZRANGE', prefix .. 'members:' .. key, 0, most - 1)
  for _, member in ipairs(some) do
    local id = string.sub(member, 1, 16)
    local job = load_job(id)
    if job then
      delete_job(job)
    end
  end
  wide('ZREM', prefix .. 'members:' .. key, some, 1)
  return #some
end

-- Delete jobs of a marked flow, and at the end the rest of it; how many jobs.
local function delete_flow(id, size, most)
  local deleted = 0
  for number = 0, size - 1 do
    local key = flows.part_key(id, number)
    deleted = deleted + delete_members(key, most - deleted)
    if deleted == most then
      return deleted
    end
  end
  for number = 0, size - 1 do
    local key = flows.part_key(id, number)
    redis.call('ZREM', prefix .. 'settle', key)
    redis.call('HDEL', prefix .. 'parts', key)
    redis.call('HDEL', prefix .. 'feeds', key)
    local plan = redis.call('HGET', prefix .. 'plans', key)
    local added = plan and cmsgpack.unpack(plan)[4]
    if added then
      redis.call('HDEL', prefix .. 'flows_added', flows.unhex(added[1]))
    end
    redis.call('HDEL', prefix .. 'plans', key)
    redis.call('DEL', prefix .. 'stopped:' .. key, prefix .. 'skipped:' .. key, prefix .. 'blocked:' .. key)
  end
  redis.call('HDEL', prefix .. 'flows_deleted', id)
  return deleted
end

local deleted, more = 0, 1
while deleted < limit do
  local marked = redis.call('HGETALL', prefix .. 'flows_deleted') -- one, or none
  if marked[1] then
    deleted = deleted + delete_flow(marked[1], tonumber(marked[2]), limit - deleted)
  elseif not mark_flow() then
    more = 0
    break
  end
end
settle()
return { deleted, more }
