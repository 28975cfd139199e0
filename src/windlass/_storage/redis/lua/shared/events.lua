-- The event log. Events are numbered as they come; `events:<id>` has those of one job.

local events = {}

-- Keep what befell a job at an instant. The caller has seen that the job is stored.
function events.keep(id, at, record)
  local number = struct.pack('>d', redis.call('INCR', prefix .. 'event_seq'))
  redis.call('HSET', prefix .. 'events:' .. id, number, record)
  redis.call('ZADD', prefix .. 'events', at, number .. id)
  redis.call('SADD', prefix .. 'journal', id)
end
