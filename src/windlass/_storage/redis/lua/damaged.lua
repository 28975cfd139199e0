-- Claims of jobs whose records this release cannot decode: they fail, and what is stored is kept for
-- people in the list of dead ones.
-- ARGV: by, then id, claim number and reason of each.
-- use: endings
-- runs when memory is full

local function fail(id, number, reason)
  local job = load_job(id)
  if job and job.state == RUNNING and job.number == number then
    note_dead(id, reason, job.asked, job.kept)
    local said = cmsgpack.pack({ 'Damaged', reason })
    end_claim({
      id, number, job.seq, FAIL, -1, ARGV[1], 0, false, false, said, '', 0, false, false, true,
    })
  end
end

for i = 2, #ARGV, 3 do
  fail(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2])
end
settle_claims()
return redis.status_reply('OK')
