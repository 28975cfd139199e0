-- JobStore.apply.
-- ARGV: '1' if successes stand in front of failures that came before them, else ''; then items, each of
--   transitions that are judged on their own, in this order:
--   'T', then a transition as shared/endings.lua says, packed by msgpack
--   'S', then successes that share everything but their claims: length and `by` (2 bytes and text),
--        1 if there is a result, length (4 bytes) and the result; then id, number and seq of each
-- Answer: now; one character for each transition; and for those that said how long their queue is to
-- rest their place (from 0), until when it does, and 1 if that begins now. Or, if a follow-up needs a
-- undefined limit, what insert.lua answers then; or 'order', if '1' was said where there are
-- breakers, to which the order matters: nothing is done.
-- use: endings
-- runs when memory is full

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

-- Plain successes: those that free nothing, had no error before and were not missed. The others take
-- the long way.
local function succeed_all(item)
  local by, given, result, first = struct.unpack('>xHc0BI4c0', item)
  local ids, numbers, seqs = {}, {}, {}
  local take, sub, n = struct.unpack, string.sub, 0
  for at = first, #item, 28 do
    n = n + 1
    ids[n], numbers[n], seqs[n] = take('>c16I4d', item, at)
  end
  local key, at = prefix .. 'state', string.format('%.0f', now)
  local kept = read_all('HMGET', key, ids)
  local front = string.char(SUCCEEDED, given == 1 and RESULT or 0)
  local success, answers, states, backs, queues, n = applied(SUCCEED), {}, {}, {}, {}, 0
  local its_queue, its_task, its, waits, runs, finished -- of the job before: neighbours are mostly alike
  for i = 1, #ids do
    local id, record = ids[i], kept[i]
    local answer
    if record then
      local fine, state, flags, seq, due, _, queue, task, last = pcall(take, FRONT, record)
      -- A cancel request changes nothing: a success wins over it. Nor does the mark of a solo job.
      if fine and state == RUNNING and seq == seqs[i] and flags < ERROR then
        local tail = sub(record, last)
        local back = backs[tail]
        if not back then
          back = read_back(tail, by, result)
          backs[tail] = back
        end
        if back.number == numbers[i] and not back.missed then
          answer = success
          states[n + 1], states[n + 2] = id, front .. sub(record, 3, last - 1) .. back.after_it
          n = n + 2
          back.n = back.n + 1
          back.ids[back.n] = id
          if queue ~= its_queue or task ~= its_task then
            its_queue, its_task, its = queue, task, tally_of(queue, task)
            waits, runs = its[2], its[3]
            finished = queues[queue] or { n = 0 }
            queues[queue] = finished
          end
          finished[finished.n + 1], finished[finished.n + 2] = at, id
          finished.n = finished.n + 2
          local wait, run = bucket_of(back.started - due), back.run
          its[1][SUCCEED] = (its[1][SUCCEED] or 0) + 1
          waits[wait] = (waits[wait] or 0) + 1
          runs[run] = (runs[run] or 0) + 1
        end
      end
    end
    answers[i] = answer or end_claim({
      id, numbers[i], seqs[i], SUCCEED, -1, by, 0, false, given == 1 and result, '', '', 0, false,
      false, true,
    })
  end
  if n > 0 then
    wide('HSET', key, states, 2)
    for _, back in pairs(backs) do
      wide('SREM', prefix .. 'running:' .. back.worker, back.ids, 1)
      pending.idle[back.worker] = true
    end
    for queue, ended in pairs(queues) do
      wide('ZADD', ended_line(SUCCEEDED, queue), ended, 2)
      note_ended(SUCCEEDED, queue)
      count(queue, RUNNING, -ended.n / 2)
      count(queue, SUCCEEDED, ended.n / 2)
      forgive(queue)
    end
  end
  return table.concat(answers)
end

-- --- run ---

if table.remove(ARGV, 1) == '1' and redis.call('EXISTS', prefix .. 'breakers') == 1 then
  return { 'order' }
end
local transitions, several = {}, {}
for i, item in ipairs(ARGV) do
  if string.byte(item) ~= 83 then
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
settle_claims()
return { now, table.concat(answers), rests }
