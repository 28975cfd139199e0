-- Ids by their first and last bytes.
-- reads only
-- ARGV: the lowest id and the highest, the last bytes; where to look, from where on there, at how many.
--   odd: ids kept apart, from behind one of them (in hex). time: jobs of the time the ids begin with, from
--   behind a number. all: every job, newest first, from below a number.
-- Returns the next cursor ('' at the end), how many ids were met, and those that end so.
local low, high, last = ARGV[1], ARGV[2], ARGV[3]
local where, at, look = ARGV[4], ARGV[5], tonumber(ARGV[6])
local all, UNIT = prefix .. 'all', 65536000
local found = { '', 0 }

local function made(id)
  local fine, created = pcall(struct.unpack, '>xxi8', redis.call('HGET', prefix .. 'jobs', id) or '')
  return fine and created or 0
end

-- The number before that of the first job that was made at this instant or later.
local function before(instant)
  local from, to = 0, redis.call('ZCARD', all)
  while from < to do
    local middle = math.floor((from + to) / 2)
    if made(redis.call('ZRANGE', all, middle, middle)[1]) < instant then
      from = middle + 1
    else
      to = middle
    end
  end
  local first = redis.call('ZRANGE', all, from, from, 'WITHSCORES')
  return first[2] and string.format('%.0f', first[2] - 1) or redis.call('GET', prefix .. 'seq') or '0'
end

local function meet(ids)
  found[2] = #ids
  for _, id in ipairs(ids) do
    local fits = #last == 0 or string.sub(id, -#last) == last
    -- What is kept apart was met there.
    if fits and not (where == 'time' and redis.call('ZSCORE', prefix .. 'odd', id)) then
      found[#found + 1] = id
    end
  end
  return ids[#ids], #ids == look
end

if where == 'odd' then
  local from = at == '' and '[' .. low or '(' .. at
  local ids = redis.call('ZRANGEBYLEX', prefix .. 'odd', from, '[' .. high, 'LIMIT', 0, look)
  local latest, more = meet(ids)
  found[1] = 'time'
  if more then
    found[1] = 'odd:' .. string.gsub(latest, '.', function(byte)
      return string.format('%02x', string.byte(byte))
    end)
  end
elseif where == 'time' then
  -- An id that is not kept apart was made in the same stretch of time as its job, or in the next.
  local first, final = struct.unpack('>I4', low), struct.unpack('>I4', high)
  at = at ~= '' and at or before((first - 1) * UNIT)
  local latest, more = meet(
    redis.call('ZRANGEBYSCORE', all, '(' .. at, before((final + 2) * UNIT), 'LIMIT', 0, look)
  )
  found[1] = more and 'time:' .. redis.call('ZSCORE', all, latest) or ''
else
  local ids = redis.call(
    'ZREVRANGEBYSCORE', all, at == '' and '+inf' or '(' .. at, '-inf', 'LIMIT', 0, look
  )
  local latest, more = meet(ids)
  found[1] = more and 'all:' .. redis.call('ZSCORE', all, latest) or ''
end
return found
