-- The log chunks of a job.
-- reads only
-- ARGV: id
-- Returns its number, then place and lines of each chunk, in no order; nothing if there is no such job.
local number = redis.call('ZSCORE', prefix .. 'all', ARGV[1])
if not number then
  return {}
end
local chunks = redis.call('HGETALL', prefix .. 'logs:' .. ARGV[1])
table.insert(chunks, 1, tonumber(number))
return chunks
