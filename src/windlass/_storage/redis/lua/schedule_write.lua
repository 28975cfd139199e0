-- ScheduleStore.write.
-- ARGV: for each write, in order:
--   msgpack [name, revision, when it is due ('' for never), how many may be active (-1: any number),
--   number of its jobs, note ('' for none)]
--   what its record becomes behind the revision, or '' to delete it
--   ids of earlier jobs, 16 bytes each, each once
--   two for each of its jobs, as shared/storing.lua says; what they say about conflicts is REUSE
-- Answer: for each one character, 'w' written, 's' stale, 'b' busy or 'h' held, and after it: for 'h', by
-- twos, the ids of jobs and of those that hold their keys; for 'w' a byte for each job (1: it was stored
-- before), then the ids of jobs that were discarded. Or as insert.lua does for an undefined
-- limit: nothing is written.
-- use: storing audits

-- A record begins with the revision and with when it is due, which is a mark and 8 bytes.
local REVISION, BODY = '>I4', 14

local function read_writes()
  local writes, at = {}, 1
  while at <= #ARGV do
    local name, revision, due, most, many, note = unpack(cmsgpack.unpack(ARGV[at]))
    local jobs = {}
    for i = 1, 2 * many do
      jobs[i] = ARGV[at + 2 + i]
    end
    writes[#writes + 1] = {
      name = name, revision = revision, due = due, most = most, record = ARGV[at + 1],
      active = ARGV[at + 2], jobs = jobs, note = note,
    }
    at = at + 3 + 2 * many
  end
  return writes
end

-- How many of these jobs are waiting or running.
local function active(write)
  local ids, number = {}, 0
  for at = 1, #write.active, 16 do
    ids[#ids + 1] = string.sub(write.active, at, at + 15)
  end
  local stored = read_all('ZMSCORE', prefix .. 'all', ids)
  local kept = read_all('HMGET', prefix .. 'state', ids)
  for i = 1, #ids do
    -- One that was never touched has no state record: it waits.
    if stored[i] and (not kept[i] or string.byte(kept[i]) <= RUNNING) then
      number = number + 1
    end
  end
  return number
end

local function store(write)
  if write.record == '' then
    redis.call('HDEL', prefix .. 'schedules', write.name)
    redis.call('HDEL', prefix .. 'declared', write.name)
  else
    local record = struct.pack(REVISION, write.revision + 1) .. write.record
    redis.call('HSET', prefix .. 'schedules', write.name, record)
  end
  if write.record == '' or write.due == '' then
    redis.call('ZREM', prefix .. 'planned', write.name)
  else
    redis.call('ZADD', prefix .. 'planned', write.due, write.name)
  end
  if not write.new then
    return ''
  end
  local known, expired = {}, {}
  for i = 1, write.new.many do
    known[i] = write.new.known[write.new.ids[i]] and '\1' or '\0'
  end
  for _, answer in ipairs(store_new(write.new)) do
    expired[#expired + 1] = #answer == 18 and string.sub(answer, 3) or ''
  end
  return table.concat(known) .. table.concat(expired)
end

-- Who is in the way of its jobs: by twos, theirs and the holder's ids.
local function held(write)
  local pairs_of = {}
  for i, holder in pairs(write.new and holders_of(write.new) or {}) do
    pairs_of[#pairs_of + 1] = write.new.ids[i] .. holder
  end
  return table.concat(pairs_of)
end

local function judge(write)
  local stored, revision = redis.call('HGET', prefix .. 'schedules', write.name), 0
  if stored then
    revision = struct.unpack(REVISION, stored)
    if revision == write.revision + 1 and write.record ~= ''
      and string.sub(stored, BODY) == string.sub(write.record, BODY - 4) then
      return 'w'
    end
  elseif write.record == '' then
    return 'w'
  end
  if revision ~= write.revision then
    return 's'
  elseif write.most >= 0 and active(write) >= write.most then
    return 'b'
  end
  if #write.jobs > 0 then
    write.new = read_new(write.jobs) -- again: a write before this one may have stored the same
  end
  local holders = held(write)
  if holders ~= '' then
    return 'h' .. holders
  end
  local stored_with = store(write)
  audits.keep(write.note, 1)
  return 'w' .. stored_with
end

local writes, answers = read_writes(), {}
for _, write in ipairs(writes) do
  local refusal = #write.jobs > 0 and unknown_limit(read_new(write.jobs))
  if refusal then
    return refusal
  end
end
for i, write in ipairs(writes) do
  answers[i] = judge(write)
end
settle()
wake()
notify('schedule')
return answers
