-- JobStore.apply.
-- ARGV: items, each of transitions that are judged on their own, in this order:
--   'T', then a transition as shared/endings.lua says, packed by msgpack
--   'S', then successes that share everything but their claims: length and `by` (2 bytes and text),
--        1 if there is a result, length (4 bytes) and the result; then id, number and seq of each
-- Answer: now, and one character for each transition.
-- use: endings

local SUCCESS = applied(SUCCEED)

-- Plain successes: those that free nothing and had no error before. The others take the long way.
local function succeed_all(item)
  local by, given, result, first = struct.unpack('>xHc0BI4c0', item)
  local ids, numbers, seqs = {}, {}, {}
  for at = first, #item, 28 do
    local n = #ids + 1
    ids[n], numbers[n], seqs[n] = struct.unpack('>c16I4d', item, at)
  end
  local key = prefix .. 'state'
  local kept = read_all('HMGET', key, ids)
  local tail = struct.pack('>Hc0', #by, by) .. result
  local flags = given == 1 and RESULT or 0
  local answers, states, finished, gone, queues = {}, {}, {}, {}, {}
  local whole = STATE .. 'Hc0'
  for i = 1, #ids do
    local record = kept[i]
    local plain = false
    if record then
      local fine, state, its_flags, seq, number, attempt, most, _, due, started, _, expires, _, _, _,
        whose = pcall(struct.unpack, whole, record)
      -- A cancel request changes nothing: a success wins over it.
      if fine and state == RUNNING and number == numbers[i] and seq == seqs[i]
        and its_flags % 64 - its_flags % 4 == 0 then
        plain = true
        local n = #states
        states[n + 1] = ids[i]
        states[n + 2] = struct.pack(
          whole, SUCCEEDED, flags, seq, number, attempt, most, 0, due, started, now, expires, 0,
          number, SUCCEED, #whose, whose
        ) .. tail
        finished[n + 1], finished[n + 2] = now, ids[i]
        tally(whose, SUCCEED, due, started)
        local its = gone[whose]
        if not its then
          its = {}
          gone[whose] = its
        end
        its[#its + 1] = ids[i]
        answers[i] = SUCCESS
      end
    end
    if not plain then
      local transition = {
        ids[i], numbers[i], seqs[i], SUCCEED, -1, by, 0, false, given == 1 and result, '', '', 0,
        false, false, true,
      }
      answers[i] = end_claim(transition)
    end
  end
  if #states > 0 then
    wide('HSET', key, states, 2)
    wide('ZADD', prefix .. 'finished:' .. SUCCEEDED, finished, 2)
    for whose, its in pairs(gone) do
      local worker, queue = struct.unpack('>Hc0Hc0', whose)
      wide('SREM', prefix .. 'running:' .. worker, its, 1)
      idle[worker] = true
      count(queue, RUNNING, -#its)
      count(queue, SUCCEEDED, #its)
    end
  end
  return table.concat(answers)
end

local answers = {}
for i, item in ipairs(ARGV) do
  if string.byte(item) == 83 then
    answers[i] = succeed_all(item)
  else
    answers[i] = end_claim(cmsgpack.unpack(string.sub(item, 2)))
  end
end
settle()
settle_workers()
write_tallies()
wake()
return { now, table.concat(answers) }
