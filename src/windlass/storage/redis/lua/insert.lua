-- JobStore.insert.
-- ARGV: two for each job. How it is due (a byte: 0 now, 1 after, 2 at), that duration or instant, and
-- how long until it expires (-1: never); and its asked record from the budget on.
-- Answer: for each job '' (stored, now or before), or the id of the job that holds its key. Or
-- 'limit', a name that nobody defined, and the names that are: nothing is stored.
-- A batch is all or none, so it is one script: 10,000 plain jobs keep the server from everybody else
-- for a third of a second. Larger ones are stored, too; producers that can should split them.
-- use: lines

local HEAD = '>BBi8Bi8Bi8Bi8'
local BODY = '>xxxxxxxxxxHc0xHc0xi8xBxxc16'
local take, pack = struct.unpack, struct.pack

-- --- read everything first: what cannot be stored leaves nothing behind ---

-- Lists of values, not a list of jobs: a table for each would cost more than all the rest.
local ids, queues, priorities, marks, specials = {}, {}, {}, {}, {}
local limits, many = {}, #ARGV / 2
for i = 1, many do
  local body, rest, _ = ARGV[2 * i]
  queues[i], _, priorities[i], marks[i], ids[i], rest = take(BODY, body)
  if marks[i] % 4 > 0 then
    local special = cmsgpack.unpack((take('>xI4c0', body, rest)))
    specials[i] = special
    for _, use in ipairs(special[4]) do
      limits[use[1]] = true
    end
  end
end
for name in pairs(limits) do
  if redis.call('HEXISTS', prefix .. 'limits', name) == 0 then
    return { 'limit', name, unpack(redis.call('HKEYS', prefix .. 'limits')) }
  end
end
if many == 0 then
  return {}
end

-- --- store ---

local known, numbers = {}, read_all('ZMSCORE', prefix .. 'all', ids)
for i = 1, many do
  if numbers[i] then
    known[ids[i]] = true
  end
end
local last = redis.call('INCRBY', prefix .. 'seq', many) - many
local answers, records, all, stored, expiring = {}, {}, {}, 0, {}
local lines, later, added = {}, {}, {}

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

local function due_of(how, span)
  if how == 1 then
    return after(now, span)
  end
  return how == 2 and math.min(span, LAST) or now
end

local function store(i)
  local id, queue = ids[i], queues[i]
  local how, span, expires = take('>Bi8i8', ARGV[2 * i - 1])
  local due = due_of(how, span)
  expires = expires < 0 and 0 or after(now, expires)
  last = last + 1
  records[stored + 1] = id
  records[stored + 2] = pack(HEAD, 157, INT, now, INT, expires, INT, last, INT, due) .. ARGV[2 * i]
  all[stored + 1], all[stored + 2] = last, id
  stored = stored + 2
  known[id] = true
  added[queue] = (added[queue] or 0) + 1
  if expires > 0 then
    expiring[#expiring + 1] = expires
    expiring[#expiring + 1] = id
  end
  local kind = '0'
  if marks[i] > 0 or expires > 0 then
    local job = {
      id = id, seq = last, due = due, expires = expires, priority = priorities[i], marks = marks[i],
      queue = queue, flags = 0, kept = false,
    }
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
    due_changed[queue] = true
  end
end

for i = 1, many do
  answers[i] = ''
  if not known[ids[i]] then
    local key = has(marks[i], KEYED) and specials[i][1]
    local holder = key and key_holder(key, known)
    if holder then
      answers[i] = holder
    else
      if key then
        take_key(ids[i], key, specials[i][3])
      end
      store(i)
    end
  end
end
wide('HSET', prefix .. 'jobs', records, 2)
wide('ZADD', prefix .. 'all', all, 2)
wide('ZADD', prefix .. 'expiring', expiring, 2)
for queue, line in pairs(lines) do
  wide('ZADD', prefix .. 'ready:' .. queue, line, 2)
end
for queue, line in pairs(later) do
  wide('ZADD', prefix .. 'later:' .. queue, line, 2)
end
for queue, number in pairs(added) do
  count(queue, WAITING, number)
end
settle()
wake()
return answers
