-- The first script of a storage: that it runs shows that scripts may run, that its write is confirmed
-- shows that there are enough replicas.
-- Layout 1 kept the ended jobs of all queues in one line for each state: up to so many of them move.
-- use: ended
-- Returns how many: 0 when there are none left.
local AT_ONCE = 500
redis.call('SET', prefix .. 'opened', now)
for state = SUCCEEDED, DISCARDED do
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
  if #ids > 0 then
    wide('ZREM', before, ids, 1)
    return #ids
  end
end
return 0
