-- JobStore.report.
-- ARGV: for each claim its id, number, seq and msgpack [fraction, note].
-- use: jobs

for i = 1, #ARGV, 4 do
  local job = load_job(ARGV[i])
  if job and job.state == RUNNING and job.number == tonumber(ARGV[i + 1])
    and job.seq == tonumber(ARGV[i + 2]) then
    redis.call('HSET', prefix .. 'progress', job.id, ARGV[i + 3])
  end
end
return redis.status_reply('OK')
