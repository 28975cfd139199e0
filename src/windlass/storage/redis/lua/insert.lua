-- JobStore.insert.
-- ARGV: for each job how it is due (a byte: 0 now, 1 after, 2 at), that duration or instant, how long
-- until it expires (-1: never), and then its asked record from the budget on.
-- Answer: for each job '' (stored, now or before), or the id of the job that holds its key. Or
-- 'limit', a name that nobody defined, and the names that are: nothing is stored.
-- use: lines

local HEAD = '>BBi8Bi8Bi8Bi8'
local BODY = '>xi8xHc0xHc0xi8xBxxc16'

-- --- read everything first: what cannot be stored leaves nothing behind ---

local jobs, ids, limits = {}, {}, {}
for i, item in ipairs(ARGV) do
  local how, span, expires, first = struct.unpack('>Bi8i8', item)
  local body = string.sub(item, first)
  local _, queue, task, priority, marks, id, rest = struct.unpack(BODY, body)
  local due = now
  if how == 1 then
    due = after(now, span)
  elseif how == 2 then
    due = math.min(span, LAST)
  end
  jobs[i] = {
    body = body, due = due, expires = expires < 0 and 0 or after(now, expires),
    priority = priority, marks = marks, id = id, queue = queue, task = task, flags = 0, kept = false,
  }
  ids[i] = id
  if marks % 4 > 0 then
    local special = cmsgpack.unpack((struct.unpack('>xI4c0', body, rest)))
    jobs[i].special = special
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
if #ids == 0 then
  return {}
end

-- --- store ---

local known, numbers = {}, read_all('ZMSCORE', prefix .. 'all', ids)
for i, id in ipairs(ids) do
  if numbers[i] then
    known[id] = true
  end
end
local last = redis.call('INCRBY', prefix .. 'seq', #ids) - #ids
local answers, records, all, expiring, lines, later = {}, {}, {}, {}, {}, {}

local function line_of(lists, queue)
  local line = lists[queue]
  if not line then
    line = {}
    lists[queue] = line
  end
  return line
end

local function store(job)
  last = last + 1
  job.seq = last
  local n = #records
  records[n + 1] = job.id
  records[n + 2] = struct.pack(HEAD, 157, INT, now, INT, job.expires, INT, last, INT, job.due)
    .. job.body
  all[n + 1], all[n + 2] = last, job.id
  known[job.id] = true
  count(job.queue, WAITING, 1)
  if job.expires > 0 then
    expiring[#expiring + 1] = job.expires
    expiring[#expiring + 1] = job.id
  end
  local kind = kind_of(job)
  if job.due <= now and kind == '2' then
    enter_lane(job, job.special)
    return
  end
  local place = place_at(job.due, last, job.id, kind)
  if job.due <= now then
    local line = line_of(lines, job.queue)
    line[#line + 1] = job.priority
    line[#line + 1] = place
  else
    local line = line_of(later, job.queue)
    line[#line + 1] = job.due
    line[#line + 1] = place .. struct.pack('>d', job.priority)
    due_changed[job.queue] = true
  end
end

for i, job in ipairs(jobs) do
  answers[i] = ''
  if not known[job.id] then
    local key = has(job.marks, KEYED) and job.special[1]
    local holder = key and key_holder(key)
    if holder then
      answers[i] = holder
    else
      if key then
        take_key(job.id, key, job.special[3])
      end
      store(job)
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
settle()
wake()
return answers
