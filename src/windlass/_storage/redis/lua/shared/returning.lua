-- Retries of flows, in portions. Flows whose members a retry has not all reached are in `flows_retried`.
-- use: orders settling

local returning = {}

-- Requeue those of some members that failed, were cancelled or have expired. What its flow ended comes back with
-- its flow.
function returning.requeue(some)
  local ids = {}
  for i, member in ipairs(some) do
    ids[i] = string.sub(member, 1, 16)
  end
  for _, job in ipairs(load_jobs(ids)) do
    if job and job.state > SUCCEEDED then
      orders.requeue(job)
    end
  end
end

function returning.part_at(flow, number)
  return number < flow.size and flows.part(flows.part_key(flow.id, number)) or nil
end

-- The first part of the flow that a job added before the one that begins with this number; 0: no job did.
function returning.added_before(flow, first)
  for number = first - 1, 0, -1 do
    local its = flows.first_of(returning.part_at(flow, number))
    if its > 0 then
      return its
    end
  end
  return 0
end

-- The parts that a retry has not passed, one by one in the order of the graph, without the last ones. Few are read,
-- because a flow may have thousands.
function returning.ahead(flow)
  local number, first = parts.place(flow.retried)
  return function()
    while first > 0 do
      local part = returning.part_at(flow, number)
      if part and flows.first_of(part) == first then -- callbacks are behind all others
        number = number + 1
        return part
      end
      first = returning.added_before(flow, first)
      number = first
    end
    local part
    repeat
      part, number = returning.part_at(flow, number), number + 1
    until not part or (part.first == 0 and not flows.is_last(part))
    return part
  end
end

-- Let up to `limit` further members of a flow come back, of several times as many parts; how many it met, and
-- whether it is to be continued by another call.
function returning.continue(flow, limit)
  local met, passed = 0, 0
  for part in returning.ahead(flow) do
    local rank = parts.rank(part)
    if passed == limit * settling.LONE then
      flow.retried, flow.retried_to = rank, rank == flow.retried and flow.retried_to or 0
      flows.save(flow)
      return math.max(met, 1), true
    end
    passed = passed + 1
    local behind = rank == flow.retried and flow.retried_to or 0
    local some = flows.is_returning(flow, part) and redis.call(
      'ZRANGEBYSCORE', prefix .. 'members:' .. part.key, '(' .. string.format('%.0f', behind), '+inf',
      'WITHSCORES', 'LIMIT', 0, limit - met
    ) or {}
    local ids = {}
    for at = 1, #some, 2 do
      ids[#ids + 1] = some[at]
    end
    returning.requeue(ids)
    met = met + #ids
    members.flush()
    if met == limit then
      flow.retried, flow.retried_to = rank, tonumber(some[#some])
      flows.save(flow)
      return met, true
    end
    flow.retried, flow.retried_to = rank + 1, 0
    flows.spread(part)
  end
  flow.retried = false
  redis.call('SREM', prefix .. 'flows_retried', flow.id)
  settling.reopen(flow)
  flows.save(flow)
  return math.max(met, 1), false
end

-- Let an ended flow run again, and up to `limit` of its members come back.
function returning.begin(flow, limit)
  local all = flows.in_order(flow)
  flow.cancelled, flow.swept, flow.swept_to = false, 0, 0
  flow.retried, flow.retried_to = math.min(parts.rank(all[1]), 0), 0
  redis.call('ZREM', prefix .. 'settle', flow.id)
  redis.call('SADD', prefix .. 'flows_retried', flow.id)
  flows.save(flow)
  for _, part in ipairs(all) do
    flows.spread(part)
  end
  returning.continue(flow, limit)
end

-- Continue with all flows that are being retried, up to `limit` members; how many it met.
function returning.run(limit)
  local met, is_left, some = 0, false, 0
  while met < limit and not is_left do
    local id = redis.call('SRANDMEMBER', prefix .. 'flows_retried')
    if not id then
      break
    end
    local flow = flows.get(id)
    if flow and flow.retried then
      some, is_left = returning.continue(flow, limit - met)
      met = met + some
    else
      redis.call('SREM', prefix .. 'flows_retried', id)
    end
  end
  return met
end
