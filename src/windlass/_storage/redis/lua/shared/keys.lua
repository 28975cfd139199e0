-- Unique keys: who holds them, until when.
-- use: jobs

-- The id of the job that holds the key now, or nil. A job that is not stored holds nothing; `new`
-- may name, as keys, jobs that are about to be.
local function key_holder(key, new)
  local held = redis.call('HGET', prefix .. 'keys', key)
  if not held or #held ~= 24 then
    return nil
  end
  local id, till = struct.unpack('>c16d', held)
  if till ~= 0 and till <= now then
    return nil
  end
  if new and new[id] or redis.call('HEXISTS', prefix .. 'jobs', id) == 1 then
    return id
  end
  return nil
end

-- The job holds the key from now on; with a period (not 0) for that long.
local function take_key(id, key, period)
  local till = period > 0 and after(now, period) or 0
  redis.call('HSET', prefix .. 'keys', key, struct.pack('>c16d', id, till))
end

-- The job gives its key up, if it is the holder: after a window has passed it may be another one.
local function free_key(job)
  local special = special_of(job)
  if special and special[1] ~= '' then
    local held = redis.call('HGET', prefix .. 'keys', special[1])
    if held and string.sub(held, 1, 16) == job.id then
      redis.call('HDEL', prefix .. 'keys', special[1])
    end
  end
end

-- The job has ended: a hold for a time outlasts it, others do not.
local function free_key_at_end(job)
  if has(job.marks, KEYED) then
    local special = special_of(job)
    if special and special[2] ~= 'for_a_time' then
      free_key(job)
    end
  end
end
