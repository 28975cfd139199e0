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

-- The parts whose jobs a retry has not all reached, one by one in the order of the graph.
function returning.ahead(flow)
  local ordered, at = flow.grown and flows.in_order(flow), flow.grown and 0 or flow.retried - 1
  return function()
    local part
    repeat
      at = at + 1
      if ordered then
        part = ordered[at]
      else
        part = at < flow.size and flows.part(flows.part_key(flow.id, at)) or nil
      end
    until not part or flows.is_returning(flow, part)
    return part
  end
end

-- Let up to `limit` further members of a flow come back; how many it met.
function returning.continue(flow, limit)
  local met = 0
  for part in returning.ahead(flow) do
    local rank = parts.rank(part)
    local behind = rank == flow.retried and flow.retried_to or 0
    local some = redis.call(
      'ZRANGEBYSCORE', prefix .. 'members:' .. part.key, '(' .. string.format('%.0f', behind), '+inf',
      'WITHSCORES', 'LIMIT', 0, limit - met
    )
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
      return met
    end
    flow.retried, flow.retried_to = rank + 1, 0
    flows.spread(part)
  end
  flow.retried = false
  redis.call('SREM', prefix .. 'flows_retried', flow.id)
  settling.reopen(flow)
  flows.save(flow)
  return math.max(met, 1)
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
  local met = 0
  while met < limit do
    local id = redis.call('SRANDMEMBER', prefix .. 'flows_retried')
    if not id then
      break
    end
    local flow = flows.get(id)
    if flow and flow.retried then
      met = met + returning.continue(flow, limit - met)
    else
      redis.call('SREM', prefix .. 'flows_retried', id)
    end
  end
  return met
end
