-- Say goodbye: end claims and the worker's row.
-- use: room endings workers
-- ARGV: worker, transition, ... (packed as apply.lua takes them, with their 'T')
-- Returns now, and one character for each transition.
local worker = table.remove(ARGV, 1)
local answers = {}
for i, item in ipairs(ARGV) do
  answers[i] = end_claim(cmsgpack.unpack(string.sub(item, 2)))
end
for _, claim in ipairs(claims_of(worker)) do
  local job = load_job(claim[1])
  if job then
    end_claim({
      job.id, job.number, job.seq, RELEASE, CANCEL_VERB, worker, 0, true, false, '', '', job.lost,
      has(job.flags, SOLO), false, true,
    })
  end
end
end_worker(worker, 'gone')
settle()
settle_workers()
write_tallies()
wake()
return { now, table.concat(answers) }
