-- JobStore.apply.
-- ARGV: '1' if successes stand in front of failures that came before them, else ''; then items, each of
--   transitions that are judged on their own, in this order:
--   'T', then a transition as shared/endings.lua says, packed by msgpack
--   'S', then successes that share everything but their claims: length and `by` (2 bytes and text),
--        1 if there is a result, length (4 bytes) and the result; then id, number and seq of each
--   'D', then the same, of successes whose jobs are deleted: as a result, msgpack of all their results, which
--        members of flows keep
-- Answer: now; one character for each transition; and for those that said how long their queue is to
-- rest their place (from 0), until when it does, and 1 if that begins now; and the ids of jobs that were to
-- follow and are not stored. Or, if a follow-up needs a
-- undefined limit, what insert.lua answers then; or 'order', if '1' was said where there are
-- breakers, to which the order matters: nothing is done.
-- use: endings settling
-- runs when memory is full

local KEPT = 83 -- 'S'
local DELETED = 68 -- 'D'
local SETTLED = 100 -- members of flows that a call settles at most that makes parts due; claims settle the others

-- What many state records have in common from their claim number on: what it says, and what it says
-- after the success. Jobs of one claim share it.
local function read_back(back, by, result)
  local number, attempt, _, started, _, expires, missed, _, _, worker = struct.unpack(BACK, back)
  local after_it = struct.pack(
    BACK, number, attempt, 0, started, now, expires, 0, number, SUCCEED, #worker, worker, #by, by
  ) .. result
  return { number = number, started = started, run = bucket_of(now - started), worker = worker,
    missed = missed > 0, after_it = after_it, ids = {}, n = 0 }
end

-- The claims of an item: a list each of ids, numbers and seqs.
local function claims_in(item, first)
  local ids, numbers, seqs, n, take = {}, {}, {}, 0, struct.unpack
  for at = first, #item, 28 do
    n = n + 1
    ids[n], numbers[n], seqs[n] = take('>c16I4d', item, at)
  end
  return ids, numbers, seqs
end

-- Keep successes: `ended` has by queue a list with the instant and the id of each. `state`: as `ended_as`
-- says it.
local function keep_all(state, ended)
  for queue, jobs in pairs(ended) do
    wide('ZADD', ended_line(state, queue), jobs, 2)
    note_ended(state, queue)
    count(queue, SUCCEEDED, jobs.n / 2)
  end
end

-- Count successes by queue, and by part.
local function count_all(ended, parted)
  for queue, jobs in pairs(ended) do
    count(queue, RUNNING, -jobs.n / 2)
    forgive(queue)
  end
  for part, number in pairs(parted) do
    members.count(part, 'succeeded', number)
    members.count(part, 'open', -number)
  end
end

-- The result of one of these successes.
local function result_of(kind, given, result, i)
  if given == 0 then
    return false
  end
  return kind == KEPT and result or cmsgpack.unpack(result)[i]
end

-- What the ends of these claims free, by their places: {key, window, period, uses, lane key}, false where
-- it cannot be read. Most free nothing.
local function freed_by(ids, kept)
  local places, its, freed = {}, {}, {}
  for i = 1, #ids do
    if kept[i] and (string.byte(kept[i], 2) or 0) >= FREES then
      places[#places + 1], its[#its + 1] = i, ids[i]
    end
  end
  for n, asked in ipairs(read_all('HMGET', prefix .. 'jobs', its)) do
    local _, special = glance_asked(its[n], asked or '')
    freed[places[n]] = special
  end
  return freed
end

-- The key and the units of a job that has succeeded come back.
local function free(id, special, keep)
  if special[1] ~= '' and not (keep and special[2] == 'for_a_time') then
    free_key({ id = id, special = special })
  end
  release_gates(special, id)
  for i, use in ipairs(special[4]) do
    local spec = spec_of(use[1])
    if spec and spec[5] then
      close_breaker(special.gates[i])
    end
  end
end

-- Successes of jobs that had no error before and were not missed. The others take the long way.
local function succeed_all(item)
  local kind, by, given, result, first = struct.unpack('>BHc0BI4c0', item)
  local ids, numbers, seqs = claims_in(item, first)
  local kept = read_all('HMGET', prefix .. 'state', ids)
  local keep, at = kind == KEPT, string.format('%.0f', now)
  local success, flag = applied(SUCCEED), given == 1 and RESULT or 0
  local front, freeing_front = string.char(SUCCEEDED, flag), string.char(SUCCEEDED, flag + FREES)
  local frees = freed_by(ids, kept)
  local answers, states, gone, histories, backs, ended, n = {}, {}, {}, {}, {}, {}, 0
  local joined, parted = {}, {} -- of members: as `ended`, and numbers by part
  local its_queue, its_task, its_sort, its, waits, runs, jobs -- of the job before: most are like it
  local take, sub = struct.unpack, string.sub
  for i = 1, #ids do
    local id, record = ids[i], kept[i]
    local answer
    if record then
      local fine, state, flags, sort, seq, due, _, queue, task, last = pcall(take, FRONT, record)
      -- A cancel request changes nothing: a success wins over it. Nor does the mark of a solo job.
      if fine and state == RUNNING and seq == seqs[i] and flags % FREES < ERROR
        and (flags < FREES or flags < THROTTLED and frees[i]) and (sort == INT or keep) then
        local part
        if sort ~= INT then
          part, last = sub(record, last, last + 19), last + 21
        end
        local tail = sub(record, last)
        local back = backs[tail]
        if not back then
          back = read_back(tail, by, result)
          backs[tail] = back
        end
        if back.number == numbers[i] and not back.missed then
          answer = success
          back.n = back.n + 1
          back.ids[back.n] = id
          if queue ~= its_queue or task ~= its_task or sort ~= its_sort then
            its_queue, its_task, its_sort, its = queue, task, sort, tally_of(queue, task)
            waits, runs = its[2], its[3]
            local lines = part and joined or ended
            jobs = lines[queue] or { n = 0 }
            lines[queue] = jobs
          end
          if part then
            parted[part] = (parted[part] or 0) + 1
          end
          jobs.n = jobs.n + 2
          n = n + 1
          if flags >= FREES then
            free(id, frees[i], keep)
          end
          if keep then
            states[2 * n - 1] = id
            states[2 * n] = (flags < FREES and front or freeing_front) .. sub(record, 3, last - 1)
              .. back.after_it
            jobs[jobs.n - 1], jobs[jobs.n] = at, id
          else
            gone[n] = id
            if back.number > 1 then
              histories[#histories + 1] = prefix .. 'history:' .. id
            end
          end
          local wait, run = bucket_of(back.started - due), back.run
          its[1][SUCCEED] = (its[1][SUCCEED] or 0) + 1
          waits[wait] = (waits[wait] or 0) + 1
          runs[run] = (runs[run] or 0) + 1
        end
      end
    end
    answers[i] = answer or end_claim({
      id, numbers[i], seqs[i], SUCCEED, -1, by, 0, false, result_of(kind, given, result, i), '', '', 0,
      false, false, keep,
    })
  end
  if keep then
    wide('HSET', prefix .. 'state', states, 2)
    keep_all(SUCCEEDED, ended)
    keep_all('m' .. SUCCEEDED, joined)
  else
    delete_plain(gone, histories)
  end
  for _, back in pairs(backs) do
    wide('SREM', prefix .. 'running:' .. back.worker, back.ids, 1)
    pending.idle[back.worker] = true
  end
  count_all(ended, parted)
  count_all(joined, {})
  return table.concat(answers)
end

-- --- run ---

if table.remove(ARGV, 1) == '1' and redis.call('EXISTS', prefix .. 'breakers') == 1 then
  return { 'order' }
end
local transitions, several = {}, {}
for i, item in ipairs(ARGV) do
  local kind = string.byte(item)
  if kind ~= KEPT and kind ~= DELETED then
    several[#several + 1] = cmsgpack.unpack(string.sub(item, 2))
    transitions[i] = several[#several]
  end
end
local missing = missing_limit(several)
if missing then
  return missing
end

local answers, rests, place = {}, {}, 0
for i, item in ipairs(ARGV) do
  if transitions[i] then
    local till, begins
    answers[i], till, begins = end_claim(transitions[i])
    if till then
      rests[#rests + 1] = { place, till, begins }
    end
  else
    answers[i] = succeed_all(item)
  end
  place = place + #answers[i]
end
if rawget(pending, 'members') then
  take_over()
  members.flush()
  if settling.is_new() then
    settling.run(SETTLED)
  end
end
settle_claims()
return { now, table.concat(answers), rests, pending.left_out }
