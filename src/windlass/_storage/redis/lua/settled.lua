-- JobStore.settled.
-- ARGV: ids. Answer: for each its state record, '' if it has none, or false if it is not stored; and
-- msgpack [kind, message] of its error, or ''. States that are not terminal are ''.
-- reads only
-- use: jobs

local answer = {}
local kept = read_all('HMGET', prefix .. 'state', ARGV)
for i, id in ipairs(ARGV) do
  local record, said = kept[i], ''
  if not record then
    record = redis.call('HEXISTS', prefix .. 'jobs', id) == 1 and ''
  elseif string.byte(record) < SUCCEEDED then
    record = ''
  elseif has(string.byte(record, 2), ERROR) then
    said = redis.call('HGET', prefix .. 'errors', id) or ''
  end
  answer[2 * i - 1], answer[2 * i] = record, said
end
return answer
