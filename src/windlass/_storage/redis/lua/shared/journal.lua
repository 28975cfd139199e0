-- What is written of jobs: log chunks of their runs, and events. It goes with the job.

local journal = {}

-- These jobs are taken away, and what is written of them. Most jobs have nothing written.
function journal.forget(ids)
  local seen = cache.journal
  if seen.any == nil then
    seen.any = redis.call('EXISTS', prefix .. 'journal') == 1
  end
  if not seen.any then
    return
  end
  for _, id in ipairs(ids) do
    if redis.call('SREM', prefix .. 'journal', id) == 1 then
      for _, number in ipairs(redis.call('HKEYS', prefix .. 'events:' .. id)) do
        redis.call('ZREM', prefix .. 'events', number .. id)
      end
      redis.call('DEL', prefix .. 'logs:' .. id, prefix .. 'events:' .. id)
    end
  end
end
