-- FlowStore.members.
-- ARGV: part (flow's id and its number), the job number they come after, how many.
-- Answer: for each its number, id, state record ('' : none), 1 if it is blocked, and error or ''. A member whose
-- record could not be read and was taken away has false for a state record.
-- use: jobs
-- reads only

local part, limit = ARGV[1], tonumber(ARGV[3])
local joined = redis.call('HGET', prefix .. 'flows_added', string.sub(part, 1, 16))
if joined then -- a flow that was added to another one
  local first, number = struct.unpack('>I4', joined, 17), struct.unpack('>I4', part, 17)
  part = string.sub(joined, 1, 16) .. struct.pack('>I4', first + number)
end
local some = redis.call(
  'ZRANGEBYSCORE', prefix .. 'members:' .. part, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, limit
)
local found, ids, seqs = {}, {}, {}
if redis.call('HEXISTS', prefix .. 'flows', string.sub(part, 1, 16)) == 0 then
  return found
end
for at = 1, #some, 2 do
  if #some[at] == 16 then -- others were added by members
    ids[#ids + 1], seqs[#seqs + 1] = some[at], tonumber(some[at + 1])
  end
end
local kept = read_all('HMGET', prefix .. 'state', ids)
local blocked = read_all('ZMSCORE', prefix .. 'blocked:' .. part, ids)
for i, id in ipairs(ids) do
  local record, said = kept[i], ''
  if not record then
    record = redis.call('HEXISTS', prefix .. 'jobs', id) == 1 and ''
  elseif has(string.byte(record, 2), ERROR) then
    said = redis.call('HGET', prefix .. 'errors', id) or ''
  end
  found[i] = { seqs[i], id, record, blocked[i] and 1 or 0, said }
end
return found
