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

-- Let up to `limit` further members of a flow come back; how many it met.
function returning.continue(flow, limit)
  local met = 0
  while flow.retried < flow.size and met < limit do
    local part = flows.part(flows.part_key(flow.id, flow.retried))
    local some = part.kind == parts.JOBS and redis.call(
      'ZRANGEBYSCORE', prefix .. 'members:' .. part.key, '(' .. string.format('%.0f', flow.retried_to), '+inf',
      'WITHSCORES', 'LIMIT', 0, limit - met
    ) or {}
    local ids = {}
    for at = 1, #some, 2 do
      ids[#ids + 1] = some[at]
    end
    returning.requeue(ids)
    met = met + #ids
    members.flush()
    if met < limit then
      flow.retried, flow.retried_to = flow.retried + 1, 0
      flows.spread(part)
    else
      flow.retried_to = tonumber(some[#some])
    end
  end
  if flow.retried == flow.size then
    flow.retried = false
    redis.call('SREM', prefix .. 'flows_retried', flow.id)
    settling.reopen(flow)
  end
  flows.save(flow)
  return math.max(met, 1)
end

-- Let an ended flow run again, and up to `limit` of its members come back.
function returning.begin(flow, limit)
  flow.cancelled, flow.swept, flow.swept_to, flow.retried, flow.retried_to = false, 0, 0, 0, 0
  redis.call('ZREM', prefix .. 'settle', flow.id)
  redis.call('SADD', prefix .. 'flows_retried', flow.id)
  flows.save(flow)
  for _, part in ipairs(flows.all_parts(flow)) do
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
