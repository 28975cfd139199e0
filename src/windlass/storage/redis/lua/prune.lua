-- Delete jobs that reached a state longer ago, or those that are too many.
-- use: lines
-- ARGV: state digit, 'age' or 'number', the age or the number that may stay, limit
-- Returns how many.
local key, kept, limit = prefix .. 'finished:' .. ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local ids
if ARGV[2] == 'age' then
  local before = string.format('(%.0f', now - kept)
  ids = redis.call('ZRANGEBYSCORE', key, '-inf', before, 'LIMIT', 0, limit)
else
  local most = math.min(limit, redis.call('ZCARD', key) - kept)
  ids = most > 0 and redis.call('ZRANGE', key, 0, most - 1) or {}
end

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
