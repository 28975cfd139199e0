-- The first script of a storage: that it runs shows that scripts may run, that its write is confirmed
-- shows that there are enough replicas.
-- What an older Windlass has left is taken over, a bounded number of jobs at once: layout 1 kept the ended jobs of
-- all queues in one line for each state, layout 2 had no lists of those that retry.
-- use: lines
-- Returns how many: 0 when there are none left.
-- runs when memory is full
local AT_ONCE = 500
redis.call('SET', prefix .. 'opened', now)

local function divide_ended(state)
  local before = prefix .. 'finished:' .. state
  local ended = redis.call('ZRANGE', before, 0, AT_ONCE - 1, 'WITHSCORES')
  local lines, ids = {}, {}
  for i = 1, #ended, 2 do
    ids[#ids + 1] = ended[i]
  end
  for i, kept in ipairs(read_all('HMGET', prefix .. 'state', ids)) do
    local its_state, _, _, _, _, queue = glance(kept)
    if its_state == state then -- what is not known of cannot be kept for anybody
      lines[queue] = lines[queue] or {}
      table.insert(lines[queue], ended[2 * i])
      table.insert(lines[queue], ids[i])
    end
  end
  for queue, line in pairs(lines) do
    wide('ZADD', ended_line(state, queue), line, 2)
    note_ended(state, queue, line[1])
  end
  wide('ZREM', before, ids, 1)
  return #ids
end

-- `gathering` says how far it is: a cursor of HSCAN. Those that change meanwhile list themselves.
local function gather_retries()
  local cursor = redis.call('GET', prefix .. 'gathering')
  if not cursor then
    return 0
  end
  local page = redis.call('HSCAN', prefix .. 'state', cursor, 'COUNT', AT_ONCE)
  for at = 1, #page[2], 2 do
    local job = string.byte(page[2][at + 1]) == WAITING and load_job(page[2][at])
    if job then
      retries.add(job)
    end
  end
  if page[1] == '0' then
    redis.call('DEL', prefix .. 'gathering')
  else
    redis.call('SET', prefix .. 'gathering', page[1])
  end
  return math.max(1, #page[2] / 2)
end

for state = SUCCEEDED, DISCARDED do
  local moved = divide_ended(state)
  if moved > 0 then
    return moved
  end
end
return gather_retries()
