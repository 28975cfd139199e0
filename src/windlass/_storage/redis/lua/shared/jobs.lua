-- Jobs as tables, and back. For everything but the plain path of claims and successes, which
-- reads and writes the records in place.
--
-- A job: id, asked and kept (the stored records), seq, created, priority, budget, marks (of the
-- asked record), queue, task, state, flags, number, attempt, most, lost, due, started, finished,
-- expires, missed, ended_number, ended_verb, worker, by, tail (result or reason). Members of flows also
-- have: part (its flow's id and its number), added, blocked.
-- use: journal specials

-- An asked record: created, expires, seq, due, budget, queue, task, priority, marks, id.
local ASKED = '>xxi8xi8xi8xi8xi8xHc0xHc0xi8xBxxc16'
-- A state record begins with state and flags; seq, due, most, queue and task stand in it just as they
-- do in the asked record, so that a claim copies them in one piece.
-- The byte before seq tells members of flows from other jobs.
local FRONT = '>BBBi8xi8xi8xHc0xHc0'
local FRONT_WRITTEN = '>BBBi8Bi8Bi8BHc0BHc0'
-- Of a member, its membership comes next. Then number, attempt, lost, started, finished, expires, missed, ended number, ended verb, worker, by.
local BACK = '>I4I4I4i8i8i8i8I4BHc0Hc0'
local INT, TEXT = 211, 218 -- the prefixes of an integer and of a text
local WAITING, RUNNING, SUCCEEDED, FAILED, CANCELLED, DISCARDED = 0, 1, 2, 3, 4, 5
-- Flags of a state record. FREES: its end frees a key or a limit. THROTTLED: there is a number.
-- SPENT: a key held until the start was given up for good.
local CANCEL, SOLO, ERROR, RESULT, REASON, FREES, THROTTLED, SPENT = 1, 2, 4, 8, 16, 32, 64, 128
-- Marks of an asked record. STARTED: its key is freed at its start.
local KEYED, LIMITED, STARTED = 1, 2, 4
local LAST = 221845392000000000

local function has(flags, flag)
  return flags % (2 * flag) >= flag
end

-- Call a command with many arguments: fixed ones, then `list` in groups of `width`.
local function wide(command, key, list, width)
  local step = width * math.floor(1000 / width)
  for first = 1, #list, step do
    redis.call(command, key, unpack(list, first, math.min(first + step - 1, #list)))
  end
end

-- Collect, by key, the members that one command is to name: one, or a list where there are more. Most have
-- one, and a table for each would cost more than the rest.
local function gather(lists, key, member)
  local list = lists[key]
  if not list then
    lists[key] = member
  elseif type(list) == 'table' then
    list[#list + 1] = member
  else
    lists[key] = { list, member }
  end
end

-- The same for scores and members: always lists.
local function gather_scored(lists, key, score, member)
  local list = lists[key]
  if list then
    list[#list + 1] = score
    list[#list + 1] = member
  else
    lists[key] = { score, member }
  end
end

-- Call a command for each key with what was collected.
local function send(command, lists, width, front)
  for key, list in pairs(lists) do
    if type(list) == 'table' then
      wide(command, front .. key, list, width)
    else
      redis.call(command, front .. key, list)
    end
  end
end

-- The same as `wide` for reading: one list of all answers.
local function read_all(command, key, list)
  if #list <= 1000 then
    return #list > 0 and redis.call(command, key, unpack(list)) or {}
  end
  local answers = {}
  for first = 1, #list, 1000 do
    local some = redis.call(command, key, unpack(list, first, math.min(first + 999, #list)))
    for i = 1, #some do
      answers[first + i - 1] = some[i]
    end
  end
  return answers
end

-- `span` after `at`, or the last instant.
local function after(at, span)
  return math.min(at + span, LAST)
end

-- Whether an id begins with another time than that its job was made at, told to about a minute.
-- Those are kept in `odd`: named.lua finds the others among the jobs of that time.
local function is_odd(id, made)
  local apart = struct.unpack('>I4', id) - math.floor(made / 65536000)
  return apart > 1 or apart < -1
end

-- --- members of flows ---

-- A membership is 21 bytes: its part (the flow's id and the part's number, 20 bytes) and flags. The asked
-- record of a member ends with it, and before it with how the job is due. (A table: a script has room for
-- 200 local names.) RECORD: the first byte of such an asked record, 157 in others. SORT: the prefix of its
-- seq there and in its state record: the same number to every reader of msgpack.
local ADDED, BLOCKED = 1, 2
local members = { RECORD = 158, SORT = 207 }

function members.pack(part, added, blocked)
  return part .. string.char((added and ADDED or 0) + (blocked and BLOCKED or 0))
end

function members.read(job, membership)
  local flags = string.byte(membership, 21)
  job.part = string.sub(membership, 1, 20)
  job.added, job.blocked = has(flags, ADDED), has(flags, BLOCKED)
end

-- --- records ---

-- The job of two stored records (`kept` may be false: it was never touched). Nil and why, if they
-- cannot be read.
local function parse_job(id, asked, kept)
  if not asked then
    return nil, 'its record is missing'
  end
  local fine, created, expires, seq, due, budget, queue, task, priority, marks, own, rest =
    pcall(struct.unpack, ASKED, asked)
  if not fine or own ~= id then
    return nil, 'its record cannot be read'
  end
  local job = {
    id = id, asked = asked, kept = kept, rest = rest, seq = seq, created = created, due = due,
    expires = expires, priority = priority, budget = budget, marks = marks, queue = queue,
    task = task, state = WAITING, flags = 0, number = 0, attempt = 0, most = budget, lost = 0,
    started = 0, finished = 0, missed = 0, ended_number = 0, ended_verb = 0, worker = '', by = '',
    tail = '',
  }
  if string.byte(asked) == members.RECORD then
    members.read(job, string.sub(asked, -21))
  end
  if kept then
    local front, state, flags, sort, _, its_due, most, _, _, back = pcall(struct.unpack, FRONT, kept)
    if front and sort == members.SORT then
      members.read(job, string.sub(kept, back, back + 20))
      back = back + 21
    end
    local whole, number, attempt, lost, started, finished, its_expires, missed, ended_number,
      ended_verb, worker, by, tail = pcall(struct.unpack, BACK, kept, front and back or 0)
    if not front or not whole then
      return nil, 'its state cannot be read'
    end
    job.state, job.flags, job.number, job.attempt, job.most = state, flags, number, attempt, most
    job.lost, job.due, job.started, job.finished = lost, its_due, started, finished
    job.expires, job.missed, job.ended_number, job.ended_verb =
      its_expires, missed, ended_number, ended_verb
    job.worker, job.by, job.tail = worker, by, string.sub(kept, tail)
  end
  return job
end

-- The jobs with these ids: a list with a job for each, or false where none is stored that can be
-- read.
local function load_jobs(ids)
  local asked = read_all('HMGET', prefix .. 'jobs', ids)
  local kept = read_all('HMGET', prefix .. 'state', ids)
  local jobs = {}
  for i, id in ipairs(ids) do
    jobs[i] = parse_job(id, asked[i], kept[i]) or false
  end
  return jobs
end

-- One of them, or false.
local function load_job(id)
  return load_jobs({ id })[1]
end

-- State, flags, seq, number, started, queue and task of a state record, and the membership of a member's;
-- nil if it cannot be read.
local function glance(kept)
  local fine, state, flags, sort, seq, _, _, queue, task, back = pcall(struct.unpack, FRONT, kept)
  if not fine then
    return nil
  end
  local membership
  if sort == members.SORT then
    membership, back = string.sub(kept, back, back + 20), back + 21
  end
  local whole, number, _, _, started = pcall(struct.unpack, BACK, kept, back)
  if not whole then
    return nil
  end
  return state, flags, seq, number, started, queue, task, membership
end

local function state_record(job)
  return struct.pack(
    FRONT_WRITTEN, job.state, job.flags, job.part and members.SORT or INT, job.seq, INT, job.due, INT,
    job.most, TEXT, #job.queue, job.queue, TEXT, #job.task, job.task
  ) .. (job.part and members.pack(job.part, job.added, job.blocked) or '') .. struct.pack(
    BACK, job.number, job.attempt, job.lost, job.started, job.finished, job.expires, job.missed,
    job.ended_number, job.ended_verb, #job.worker, job.worker, #job.by, job.by
  ) .. job.tail
end

-- Store what changed.
local function save_job(job)
  job.kept = state_record(job)
  redis.call('HSET', prefix .. 'state', job.id, job.kept)
end

-- Set or clear a flag.
local function mark(job, flag, on)
  if has(job.flags, flag) ~= on then
    job.flags = job.flags + (on and flag or -flag)
  end
end

-- Jobs that a worker could not run.
local misses = {}

-- The job is none of them any more.
function misses.forget(job)
  if job.missed > 0 then
    redis.call('HDEL', prefix .. 'missed', job.id)
    job.missed = 0
  end
end

-- Where, in an asked record, the payload begins and where what few jobs carry.
local function parts_of(record, rest)
  local payload = rest + 1
  if string.byte(record, rest) ~= 192 then
    payload = rest + 5 + struct.unpack('>I4', record, rest + 1)
  end
  return payload, payload + 5 + struct.unpack('>I4', record, payload + 1)
end

-- Of an asked record, without the table of a job: its marks, what `special_of` says of it (nil: nothing; false:
-- that cannot be read), and the last byte of what a claim copies. Nil if it cannot be read. By positions: to
-- unpack all fields costs three times as much.
local function glance_asked(id, asked)
  local byte, sub = string.byte, string.sub
  local high, low = byte(asked, 48, 49)
  local last = low and 52 + high * 256 + low
  high, low = byte(asked, last and last - 1 or 0, last or 0)
  last = low and last + high * 256 + low
  if not low or sub(asked, last + 14, last + 29) ~= id then
    return nil
  end
  local marks, special = byte(asked, last + 11), nil
  if marks % 4 > 0 then
    local a, b, c, d = byte(asked, last + 31, last + 34)
    local size = d and ((a * 256 + b) * 256 + c) * 256 + d
    special = d and unpack_special(sub(asked, last + 35, last + 34 + size)) or false
  end
  return marks, special, last
end

-- What a job with a key or limits asked for: {key, window, period, uses, lane key}; each use is
-- {name, key, cost}, and `gates` names its gate at the same place. Key and window are '' and the uses empty where there are none. Nil: it cannot
-- be read.
local function special_of(job)
  if job.special == nil then
    job.special = { '', '', 0, {}, '', gates = {} }
    if job.marks % 4 > 0 then
      local fine, packed = pcall(struct.unpack, '>xI4c0', job.asked, job.rest)
      job.special = fine and unpack_special(packed)
    end
  end
  return job.special or nil
end

-- --- counts, and who is to be told ---

-- Add to the count of a queue's jobs in this state, or subtract. Written by `flush_counts`.
local function count(queue, state, change)
  local field = state .. queue
  pending.counted[field] = (pending.counted[field] or 0) + change
end

local function flush_counts()
  for field, change in pairs(pending.counted) do
    if change ~= 0 and redis.call('HINCRBY', prefix .. 'counts', field, change) == 0 then
      redis.call('HDEL', prefix .. 'counts', field)
    end
  end
  pending.counted = nil
end

-- Something changed that others may wait for. `queues`: a table whose keys are all the queues that it is
-- about; nil, or more of them than one entry is to carry: any.
local function wake(queues)
  local names, size = {}, 0
  for queue in pairs(queues or {}) do
    names[#names + 1], size = queue, size + #queue
  end
  if not queues or #names > 16 or size > 1024 then
    redis.call('XADD', prefix .. 'wake', 'MAXLEN', '~', 64, '*', 'w', '')
  elseif #names > 0 then
    redis.call('XADD', prefix .. 'wake', 'MAXLEN', '~', 64, '*', 'q', cmsgpack.pack(names))
  end
end

-- Those who wait for one topic are told: 'cancel' (a running job is to be cancelled) or 'schedule'.
local function notify(topic)
  redis.call('XADD', prefix .. 'notices', 'MAXLEN', '~', 64, '*', 't', topic)
end

-- --- the end of a record ---

-- Keep for people what cannot be read.
local function note_dead(id, reason, asked, kept)
  asked = asked or ''
  local entry = struct.pack('>c16dI4I4', id, now, #reason, #asked) .. reason .. asked .. (kept or '')
  redis.call('LPUSH', prefix .. 'dead', entry)
  redis.call('LTRIM', prefix .. 'dead', 0, 999)
end

-- The same, and take its job away with all that is known of it. What key it holds cannot be read:
-- `key_holder` finds out that no job does.
local function bury_record(queue, id, reason, asked, kept)
  note_dead(id, reason, asked, kept)
  members.bury(asked, kept)
  for _, key in ipairs({
    'jobs', 'state', 'errors', 'tracebacks', 'frames', 'progress', 'throttled',
    'missed', 'metadata',
  }) do
    redis.call('HDEL', prefix .. key, id)
  end
  redis.call('ZREM', prefix .. 'retrying:' .. queue, id)
  journal.forget({ id })
  redis.call('DEL', prefix .. 'history:' .. id)
  redis.call('ZREM', prefix .. 'all', id)
  redis.call('ZREM', prefix .. 'odd', id)
  redis.call('ZREM', prefix .. 'expiring', id)
end
