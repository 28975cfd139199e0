-- Say goodbye: end claims and the worker's row.
-- use: endings workers
-- ARGV: worker, transition, ... (packed as apply.lua takes them, with their 'T')
-- Returns as apply.lua does.
-- runs when memory is full
local worker = table.remove(ARGV, 1)

-- A function, because one chunk has 200 locals at most.
local function leave()
  local transitions, answers, rests = {}, {}, {}
  for i, item in ipairs(ARGV) do
    transitions[i] = cmsgpack.unpack(string.sub(item, 2))
  end
  local missing = missing_limit(transitions)
  if missing then
    return missing
  end
  for i, transition in ipairs(transitions) do
    local till, begins
    answers[i], till, begins = end_claim(transition)
    if till then
      rests[#rests + 1] = { i - 1, till, begins }
    end
  end
  take_over()
  for _, claim in ipairs(claims_of(worker)) do
    local job = load_job(claim[1])
    if job then
      local release = {
        job.id, job.number, job.seq, RELEASE, CANCEL_VERB, worker, 0, true, false, '', '', job.lost,
        has(job.flags, SOLO), false, true,
      }
      release[20] = false -- it was not started
      end_claim(release)
    end
  end
  end_worker(worker, 'gone')
  settle_claims()
  return { now, table.concat(answers), rests, pending.left_out }
end

return leave()
