-- New jobs: read, judged and stored. Each is two strings. How it is due (a byte: 0 now, 1 after, 2 at),
-- that duration or instant, how long until it expires (-1: never), and what becomes of it if its key is
-- held (a byte, see below); and its asked record from the budget on.
-- use: lines rollups

local REPLACE_ARGUMENTS, REPLACE_DUE, RAISE, REUSE = 2, 3, 4, 0
local NEW_HEAD = '>BBi8Bi8Bi8Bi8'
local MEMBERSHIP = 41 -- bytes that a member's record ends with: see `members` in jobs.lua
local NEW_BODY = '>xxxxxxxxxxHc0xHc0xi8xBxxc16'

-- Everything is read first: what cannot be stored leaves nothing behind. Lists of values, not a list of
-- jobs: a table for each would cost more than all the rest. `rests`, of those with a key or limits:
-- where in the record what they say of it begins.
local function read_new(items)
  local take, ids, queues, tasks, priorities, marks, specials, rests = struct.unpack, {}, {}, {}, {},
    {}, {}, {}
  local many = #items / 2
  for i = 1, many do
    local body, rest = items[2 * i], nil
    queues[i], tasks[i], priorities[i], marks[i], ids[i], rest = take(NEW_BODY, body)
    if marks[i] % 4 > 0 then
      specials[i], rests[i] = unpack_special((take('>xI4c0', body, rest))), rest
    end
  end
  local known, numbers = {}, read_all('ZMSCORE', prefix .. 'all', ids)
  local first, again = {}, {}
  for i = 1, many do
    local id = ids[i]
    if numbers[i] then
      known[id] = true
    end
    if first[id] or numbers[i] then
      again[#again + 1] = { i, not numbers[i] and first[id] }
    end
    first[id] = i
  end
  return {
    many = many, items = items, ids = ids, queues = queues, tasks = tasks, priorities = priorities,
    marks = marks, specials = specials, rests = rests, known = known, again = again,
  }
end

-- The payload of an asked record.
local function payload_of(record, rest)
  local payload, extras = parts_of(record, rest)
  return string.sub(record, payload, extras - 1)
end

-- The answer for an id that is stored with another task or payload, or comes twice in the batch so:
-- 'id' and it. Nil: all that are known are repeated calls. Under the same key the payload may have been
-- replaced since.
local function refused_id(new)
  for _, found in ipairs(new.again) do
    local i, j = found[1], found[2]
    local id, body = new.ids[i], new.items[2 * i]
    local _, _, _, _, _, rest = struct.unpack(NEW_BODY, body)
    local task, key, payload
    if j then
      local other = new.items[2 * j]
      local _, _, _, _, _, its = struct.unpack(NEW_BODY, other)
      task, payload = new.tasks[j], payload_of(other, its)
      key = new.specials[j] and new.specials[j][1]
    else
      local job = load_job(id)
      local special = job and special_of(job)
      task, key = job and job.task, special and special[1]
      payload = job and payload_of(job.asked, job.rest)
    end
    local mine = has(new.marks[i], KEYED) and new.specials[i][1]
    if task and (task ~= new.tasks[i] or (payload ~= payload_of(body, rest) and mine ~= key)) then
      return { 'id', id }
    end
  end
end

-- The answer for an undefined limit: 'limit', its name, the names that are. Nil: all are.
local function unknown_limit(new)
  local asked = {}
  for _, special in pairs(new.specials) do
    for _, use in ipairs(special[4]) do
      if not asked[use[1]] and redis.call('HEXISTS', prefix .. 'limits', use[1]) == 0 then
        return { 'limit', use[1], unpack(redis.call('HKEYS', prefix .. 'limits')) }
      end
      asked[use[1]] = true
    end
  end
end

-- What becomes of the job if its key is held.
local function on_conflict(new, i)
  return string.byte(new.items[2 * i - 1], 18)
end

-- The holder of a key, if it waits past its expiry, its key is held no longer than that, and it is not
-- to be replaced by this job; nil: it is to be met.
local function late_holder(id, new, i)
  local expires = tonumber(redis.call('ZSCORE', prefix .. 'expiring', id) or '')
  local job = expires and expires <= now and load_job(id)
  if not job or job.state ~= WAITING then
    return nil
  end
  local special, what = special_of(job), on_conflict(new, i)
  local replaced = what ~= REUSE and what ~= RAISE and job.task == new.tasks[i]
  return special and special[2] ~= 'for_a_time' and not replaced and job or nil
end

-- The answer for a job that may not meet the holder of its key, also one of its own batch: 'key', it
-- and the holder. Nil: there is none.
local function refused_key(new)
  local holders = {} -- key to {id, task}
  for i = 1, new.many do
    local id = new.ids[i]
    if has(new.marks[i], KEYED) and not new.known[id] then
      local key, what = new.specials[i][1], on_conflict(new, i)
      if not holders[key] then
        local holder = key_holder(key)
        holder = holder and not late_holder(holder, new, i) and holder
        local job = holder and what ~= REUSE and load_job(holder)
        holders[key] = holder and { holder, job and job.task } or { id, new.tasks[i] }
      end
      local holder = holders[key]
      if holder[1] ~= id and what ~= REUSE then
        if not holder[2] then
          local job = load_job(holder[1])
          holder[2] = job and job.task
        end
        -- Arguments of one task mean nothing to another.
        if what == RAISE or holder[2] ~= new.tasks[i] then
          return { 'key', key, holder[1] }
        end
      end
    end
  end
end

-- Who is in the way of each new job that has a key, by its place: a stored job, or an earlier one of
-- these.
local function holders_of(new)
  local taken, held = {}, {}
  for i = 1, new.many do
    local id = new.ids[i]
    if has(new.marks[i], KEYED) and not new.known[id] then
      local key = new.specials[i][1]
      local holder = key_holder(key)
      holder = holder and not late_holder(holder, new, i) and holder
      taken[key] = taken[key] or id
      holder = holder or taken[key]
      if holder ~= id then
        held[i] = holder
      end
    end
  end
  return held
end

-- --- replacing ---

-- Principal, correlation id and trace in what few jobs carry: it, up to where, and from where on.
local function context_of(extras)
  if extras == '\192' then
    return '\192\192\192'
  end
  local first = cmsgpack.unpack_limit(extras, 4, 1)
  local last = cmsgpack.unpack_limit(extras, 3, first)
  last = last < 0 and #extras or last
  return string.sub(extras, first + 1, last), first, last
end

-- The job takes over payload, limits and context; the fields before them stay.
local function take_arguments(job, body, rest, special)
  local old_payload, old_extras = parts_of(job.asked, job.rest)
  local payload, extras = parts_of(body, rest)
  local context = context_of(string.sub(body, extras))
  local carried, membership = string.sub(job.asked, old_extras), ''
  if job.part then
    membership, carried = string.sub(carried, -MEMBERSHIP), string.sub(carried, 1, -MEMBERSHIP - 1)
  end
  local _, first, last = context_of(carried)
  if first then
    carried = string.sub(carried, 1, first) .. context .. string.sub(carried, last + 1)
  elseif context ~= '\192\192\192' then
    carried = '\151\192\192\144\192' .. context -- no timeout, no backoff, no tags, no tenant
  end
  local mine = special_of(job)
  local packed = cmsgpack.pack({ mine[1], mine[2], mine[3], special[4], special[5] })
  if has(job.marks, LIMITED) ~= (#special[4] > 0) then
    job.marks = job.marks + (#special[4] > 0 and LIMITED or -LIMITED)
  end
  job.asked = string.sub(job.asked, 1, job.rest - 20) .. string.char(job.marks)
    .. string.sub(job.asked, job.rest - 18, job.rest - 1)
    .. struct.pack('>BI4', 198, #packed) .. packed
    .. string.sub(body, payload, extras - 1) .. carried .. membership
  job.special = nil
  redis.call('HSET', prefix .. 'jobs', job.id, job.asked)
end

-- The holder of a key takes over what was asked for in its stead, if it waits: true.
local function replace_job(id, new, i, what)
  local job = load_job(id)
  if not job or job.state ~= WAITING or job.blocked or not special_of(job) then
    return false
  end
  leave_line(job)
  -- What is asked for now must not be lost to an expiry that was asked for before.
  job.expires = expiry_of(new.items[2 * i - 1])
  if what ~= REPLACE_DUE then
    take_arguments(job, new.items[2 * i], new.rests[i], new.specials[i])
  end
  stand(job, what == REPLACE_ARGUMENTS and job.due or due_of(new.items[2 * i - 1]))
  return true
end

-- --- storing ---

-- Store what was read. The answer: for each job '' (stored), or '=' (stored before), or two bytes and the id of
-- the job that held its key before and was discarded for it (stored, too), or the id of the job that
-- holds its key, with one byte more if that took over what was asked for. And for `wake`, a table by the
-- queues where something is stored by now; nil if a holder took over or ended, whose queue may be any. Call
-- `settle` after it.
-- `joins`: memberships of those that are members of flows, by their places; nil: none is. `joins.since`: the instant
-- when their flow was started, which orders those without a delay; nil: it is started now.
local function store_new(new, joins)
  local take, pack, items = struct.unpack, struct.pack, new.items
  local ids, queues, marks, specials, known = new.ids, new.queues, new.marks, new.specials, new.known
  local priorities, since = new.priorities, joins and joins.since
  local last = redis.call('INCRBY', prefix .. 'seq', new.many) - new.many
  local answers, records, all, odd, stored, expiring = {}, {}, {}, {}, 0, {}
  local lines, later, added, taken_over = {}, {}, {}, false
  local places = {} -- by membership, where members join
  local job = { -- the one that is stored, if it carries something special
    id = '', seq = 0, due = 0, expires = 0, priority = 0, marks = 0, queue = '', flags = 0, kept = false,
  }

  -- The members that join a line, by queue.
  local function line_of(lists, queue)
    local line = lists[queue]
    if not line then
      line = { n = 0 }
      lists[queue] = line
    end
    return line
  end

  local function join(line, score, member)
    line[line.n + 1], line[line.n + 2] = score, member
    line.n = line.n + 2
  end

  local function flush()
    wide('HSET', prefix .. 'jobs', records, 2)
    wide('ZADD', prefix .. 'all', all, 2)
    wide('ZADD', prefix .. 'odd', odd, 2)
    wide('ZADD', prefix .. 'expiring', expiring, 2)
    for queue, line in pairs(lines) do
      wide('ZADD', prefix .. 'ready:' .. queue, line, 2)
      hints.add(queue, line.n / 2)
    end
    for queue, line in pairs(later) do
      wide('ZADD', prefix .. 'later:' .. queue, line, 2)
      hints.tell(queue)
    end
    for _, place in pairs(places) do
      wide('ZADD', prefix .. 'members:' .. place.part, place.joined, 2)
      wide('ZADD', prefix .. 'blocked:' .. place.part, place.held, 2)
    end
    records, all, odd, stored, expiring, lines, later = {}, {}, {}, 0, {}, {}, {}
    places = {}
  end

  -- Where members with this membership join: their part, and whether they are blocked.
  local function place_in(membership)
    local place = places[membership]
    if not place then
      place = { joined = { n = 0 }, held = { n = 0 } }
      members.read(place, membership)
      place.mark = place.added and 'a' or ''
      places[membership] = place
    end
    return place
  end

  -- A member's record, and its place in its part; true if it is blocked, so that it is in no line.
  local function join_part(i, id, asks, expires, due)
    local place = place_in(joins[i])
    local until_when = place.blocked and 0 or expires -- it counts from its turn
    records[stored + 2] = pack(
      NEW_HEAD, members.RECORD, INT, now, INT, until_when, members.SORT, last, INT, due
    ) .. items[2 * i] .. '\196\39' .. asks .. joins[i]
    join(place.joined, last, id .. place.mark)
    if place.blocked then
      join(place.held, last, id)
      members.count_blocked(queues[i], 1)
    end
    return place.blocked
  end

  local function store(i)
    local id, queue, asks = ids[i], queues[i], items[2 * i - 1]
    local due, expires = since and string.byte(asks) == 0 and since or due_of(asks), expiry_of(asks)
    local waits = false
    last = last + 1
    records[stored + 1] = id
    if joins and joins[i] then
      waits = join_part(i, id, asks, expires, due)
    else
      records[stored + 2] = pack(NEW_HEAD, 157, INT, now, INT, expires, INT, last, INT, due)
        .. items[2 * i]
    end
    all[stored + 1], all[stored + 2] = last, id
    stored = stored + 2
    if is_odd(id, now) then
      odd[#odd + 1], odd[#odd + 2] = 0, id
    end
    known[id] = true
    added[queue] = (added[queue] or 0) + 1
    if waits then
      return
    end
    if expires > 0 then
      expiring[#expiring + 1] = expires
      expiring[#expiring + 1] = id
    end
    local kind = '0'
    if marks[i] > 0 or expires > 0 then
      job.id, job.seq, job.due, job.expires = id, last, due, expires
      job.priority, job.marks, job.queue = priorities[i], marks[i], queue
      kind = kind_of(job)
      if due <= now and kind == '2' then
        enter_lane(job, specials[i])
        return
      end
    end
    local place = place_at(due, last, id, kind)
    if due <= now then
      join(line_of(lines, queue), priorities[i], place)
    else
      join(line_of(later, queue), due, place .. pack('>d', priorities[i]))
      pending.due[queue] = true
    end
  end

  for i = 1, new.many do
    answers[i] = known[ids[i]] and '=' or ''
    if not known[ids[i]] then
      local key = has(marks[i], KEYED) and specials[i][1]
      local holder = key and key_holder(key, known)
      local late = holder and late_holder(holder, new, i)
      if late then
        end_waiting(late, DISCARDED, 'expired')
        answers[i], taken_over = 'ex' .. holder, true -- some may wait for its end, in any queue
        holder = nil
      end
      if holder then
        answers[i] = holder
        local what = on_conflict(new, i)
        if what ~= REUSE and what ~= RAISE then
          flush() -- the holder may be one of this batch
          if replace_job(holder, new, i, what) then
            answers[i], taken_over = holder .. 'r', true
          end
        end
        tally_coalesced(queues[i], new.tasks[i])
      else
        if key then
          take_key(ids[i], key, specials[i][3])
        end
        store(i)
      end
    end
  end
  flush()
  for queue, number in pairs(added) do
    count(queue, WAITING, number)
  end
  write_tallies()
  return answers, not taken_over and added or nil
end
