-- Delete jobs that reached a state longer ago, or those that are too many.
-- use: lines
-- ARGV: state digit, then 'age', the age, and queue and age of those apart; or 'number'; at the end
--   the limit
-- Returns how many. With 'number' the oldest go, up to the limit.
local state, left = tonumber(ARGV[1]), tonumber(ARGV[#ARGV])
local pruned = 0

-- Most have succeeded, with no key, limit or error: their state record says all there is to do, and
-- they go together. Deletions come first: they work when memory is short.
local function prune(queue, ids)
  local plain, others = {}, {}
  for i, kept in ipairs(read_all('HMGET', prefix .. 'state', ids)) do
    local its_state, flags, _, number = glance(kept)
    if its_state == SUCCEEDED and state == SUCCEEDED and (flags == 0 or flags == RESULT) then
      plain[#plain + 1] = ids[i]
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
  wide('HDEL', prefix .. 'metadata', plain, 1)
  wide('ZREM', prefix .. 'all', plain, 1)
  wide('ZREM', prefix .. 'odd', plain, 1)
  journal.forget(plain)
  count(queue, SUCCEEDED, -#plain)
  -- One by one: a payload may be large.
  for _, id in ipairs(others) do
    local job = load_job(id)
    if job and job.state == state then
      job.finished = 0 -- all of them leave the line together
      delete_job(job)
    elseif not job then
      local kept = redis.call('HGET', prefix .. 'state', id)
      count(queue, state, -1)
      bury_record(
        queue, id, 'its record cannot be read', redis.call('HGET', prefix .. 'jobs', id), kept
      )
    end
  end
  drop_ended(state, queue, ids)
  settle_ended()
  pruned, left = pruned + #ids, left - #ids
end

-- The first of a queue that ended before (a bound of scores), as many as may go.
local function first_ended(queue, before)
  return redis.call('ZRANGEBYSCORE', ended_line(state, queue), '-inf', before, 'LIMIT', 0, left)
end

local oldest = prefix .. 'oldest:' .. state

local function prune_by_age()
  local apart = {}
  for i = 4, #ARGV - 1, 2 do
    apart[ARGV[i]] = true
    if left > 0 then
      prune(ARGV[i], first_ended(ARGV[i], string.format('(%.0f', now - ARGV[i + 1])))
    end
  end
  local before, skipped = string.format('(%.0f', now - ARGV[3]), 0
  while left > 0 do
    local queue = redis.call('ZRANGEBYSCORE', oldest, '-inf', before, 'LIMIT', skipped, 1)[1]
    if not queue then
      return
    elseif apart[queue] then
      skipped = skipped + 1
    else
      prune(queue, first_ended(queue, before))
    end
  end
end

local function prune_oldest()
  while left > 0 do
    local first = redis.call('ZRANGE', oldest, 0, 1, 'WITHSCORES')
    if not first[1] then
      return
    end
    prune(first[1], first_ended(first[1], first[4] or '+inf'))
  end
end

if ARGV[2] == 'age' then
  prune_by_age()
else
  prune_oldest()
end
settle()
return pruned
