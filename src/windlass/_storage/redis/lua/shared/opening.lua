-- Claims of blocked jobs whose part has opened, without a place in the line for each of them.
--
-- A large part is settled in portions: each job is written once more, to stand in its line, before a claim starts it.
-- A claim that would take the next jobs of such a part starts them where they are. It takes the same jobs as if it
-- had settled a portion before: the first of the part, between the same others.
-- use: settling brakes plain_members

local opening = {}

-- The part that is to be settled next, if jobs of it open and more than `least` are blocked; nil otherwise.
function opening.part(least)
  local first = redis.call('ZRANGE', prefix .. 'settle', 0, 0)[1]
  local part = first and #first == 20 and flows.part(first)
  local flow = part and part.blocked > least and flows.get(part.flow)
  if not flow or flow.cancelled or flow.grown or part.stopped + part.skipped > 0
    or parts.decide(part, false) ~= 'open' then
    return nil
  end
  local late = redis.call('ZRANGEBYSCORE', prefix .. 'settle', flows.FIRST_INSTANT, now, 'LIMIT', 0, 1)
  return #late == 0 and part or nil
end

-- Whether a queue has nothing but the common line: no limits, no solo jobs, no due ones, and it may start any number.
function opening.is_simple(queue)
  local due = first_due(queue)
  return not brake_of(queue) and not (due and due <= now)
    and redis.call('EXISTS', prefix .. 'bays:' .. queue, prefix .. 'solo:' .. queue) == 0
    and redis.call('SISMEMBER', prefix .. 'paused', queue) == 0
end

-- Read the first `many` blocked jobs of a part as what a claim needs; nil if one of them is not plain, or is of
-- another queue, or if their priorities differ. Plain: never changed, no delay, expiry, key or limit.
function opening.read(part, queue, many)
  local sub, byte = string.sub, string.byte
  local ids = settling.blocked_ids(part, many)
  local records, lasts = read_all('HMGET', prefix .. 'jobs', ids), {}
  local kept = read_all('HMGET', prefix .. 'state', ids)
  local due = struct.pack('>i8', flows.get(part.flow).created)
  local head, size = struct.pack('>Hc0', #queue, queue), 49 + #queue
  local priority, membership = nil, members.pack(part.key, false, true)
  for i = 1, #ids do
    local asked = records[i]
    local high, low = byte(asked or '', size + 2, size + 3)
    local last = low and size + 3 + high * 256 + low
    if not last or kept[i] or sub(asked, 48, size) ~= head or sub(asked, 30, 37) ~= due
      or sub(asked, -21) ~= membership or sub(asked, -39, -23) ~= plain_members.DUE_AT_ONCE
      or sub(asked, last + 14, last + 29) ~= ids[i] then
      return nil
    end
    local its = sub(asked, last + 2, last + 11) -- and its marks
    if byte(its, 10) ~= 0 or priority and its ~= priority then
      return nil
    end
    lasts[i], priority = last, its
  end
  if #ids < many then
    return nil
  end
  local take = struct.unpack
  return {
    part = part, ids = ids, records = records, lasts = lasts, priority = take('>i8', priority),
    first = take('>i8', records[1], 21), last = take('>i8', records[many], 21),
  }
end

-- Whether a member of the ready line at this rank goes before the job of this number.
function opening.precedes(queue, rank, found, number)
  local place, score = unpack(redis.call('ZRANGE', prefix .. 'ready:' .. queue, rank, rank, 'WITHSCORES'))
  local due, seq = place_order(place)
  local created = flows.get(found.part.flow).created
  if tonumber(score) ~= found.priority then
    return tonumber(score) < found.priority
  elseif due ~= created then
    return due < created
  end
  return seq < number
end

-- The jobs of an opened part that a claim of `wanted` jobs of a queue may start. `before`: how many it takes from the
-- line first; of these jobs it takes the rest. Nil: the part is to be settled as usual.
function opening.look(queue, wanted, least)
  local part = wanted > 0 and redis.call('EXISTS', prefix .. 'settle') == 1 and opening.part(least)
  local found = part and opening.is_simple(queue) and opening.read(part, queue, wanted)
  if not found then
    return nil
  end
  local ready = math.min(wanted, redis.call('ZCARD', prefix .. 'ready:' .. queue))
  if ready == 0 or not opening.precedes(queue, 0, found, found.last) then
    found.before = 0
  elseif opening.precedes(queue, ready - 1, found, found.first) then
    found.before = ready
  else
    return nil -- they take turns
  end
  return found
end

-- Start the first `many` of these jobs for a worker: `add` takes id, asked record and state record of each. Asked records
-- still say that they are blocked: the state records count from now on.
function opening.start(found, queue, many, worker, add)
  local key, front = found.part.key, string.char(RUNNING, 0)
  local back = members.pack(key, false, false)
    .. struct.pack(BACK, 1, 1, 0, now, 0, 0, 0, 0, 0, #worker, worker, 0, '')
  for i = 1, many do
    local asked = found.records[i]
    add(found.ids[i], asked, front .. string.sub(asked, 20, found.lasts[i]) .. back)
  end
  if many > 0 then
    redis.call('ZREMRANGEBYRANK', prefix .. 'blocked:' .. key, 0, many - 1)
    members.count(key, 'blocked', -many)
    members.count_blocked(queue, -many)
    members.flush()
  end
end
