-- Delete jobs that reached a state longer ago.
-- use: lines
-- ARGV: state digit, age, limit
-- Returns how many.
local key = prefix .. 'finished:' .. ARGV[1]
local before = string.format('(%.0f', now - ARGV[2])
local ids = redis.call('ZRANGEBYSCORE', key, '-inf', before, 'LIMIT', 0, ARGV[3])
for _, id in ipairs(ids) do
  -- One by one: a payload may be large. Deletions come first, they work when memory is short.
  local job = load_job(id)
  if job then
    delete_job(job)
  else
    redis.call('ZREM', key, id)
    local asked, kept = redis.call('HGET', prefix .. 'jobs', id), redis.call('HGET', prefix .. 'state', id)
    bury_record(id, 'its record cannot be read', asked, kept)
  end
end
settle()
return #ids
