-- Delete jobs that reached a state longer ago.
-- use: lines
-- ARGV: state digit, age, limit
-- Returns how many.
local key = prefix .. 'finished:' .. ARGV[1]
local before = string.format('(%.0f', now - ARGV[2])
local ids = redis.call('ZRANGEBYSCORE', key, '-inf', before, 'LIMIT', 0, ARGV[3])

-- Most have succeeded, with no key, limit or error: their state record says all there is to do, and
-- they go together. Deletions come first: they work when memory is short.
local plain, others = {}, {}
for i, kept in ipairs(read_all('HMGET', prefix .. 'state', ids)) do
  local state, flags, _, number, _, queue = glance(kept)
  if state == SUCCEEDED and (flags == 0 or flags == RESULT) then
    plain[#plain + 1] = ids[i]
    count(queue, SUCCEEDED, -1)
    if number > 1 then
      redis.call('DEL', prefix .. 'history:' .. ids[i])
    end
  else
    others[#others + 1] = ids[i]
  end
end
wide('HDEL', prefix .. 'jobs', plain, 1)
wide('HDEL', prefix .. 'state', plain, 1)
wide('HDEL', prefix .. 'progress', plain, 1)
wide('ZREM', prefix .. 'all', plain, 1)
wide('ZREM', key, plain, 1)

-- One by one: a payload may be large.
for _, id in ipairs(others) do
  local job = load_job(id)
  if job then
    delete_job(job)
  else
    redis.call('ZREM', key, id)
    local asked = redis.call('HGET', prefix .. 'jobs', id)
    local kept = redis.call('HGET', prefix .. 'state', id)
    local state, _, _, _, _, queue = glance(kept)
    if state then
      count(queue, state, -1)
    end
    bury_record(id, 'its record cannot be read', asked, kept)
  end
end
settle()
return #ids
