-- MaintenanceStore.expire.
-- ARGV: how many at most. Answer: the ids of the waiting jobs past their expiry that were discarded.
-- use: lines

local ids = redis.call('ZRANGEBYSCORE', prefix .. 'expiring', '-inf', now, 'LIMIT', 0, ARGV[1])
local expired = {}
for _, id in ipairs(ids) do
  local job = load_job(id)
  if job and job.state == WAITING then
    end_waiting(job, DISCARDED, 'expired')
    expired[#expired + 1] = id
  else
    redis.call('ZREM', prefix .. 'expiring', id)
  end
end
settle()
if #expired > 0 then
  wake()
end
return expired
