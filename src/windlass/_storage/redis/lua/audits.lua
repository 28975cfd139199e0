-- ActionStore.audits.
-- reads only
-- ARGV: how many at most, the number they must be below ('': any), '1' and a subject, or ''
-- Returns number and record (see shared/audits.lua) of each, the newest first.
local line = prefix .. (ARGV[3] == '1' and 'audits_of:' .. ARGV[4] or 'audits')
local before = ARGV[2] == '' and '+inf' or '(' .. ARGV[2]
local found = redis.call(
  'ZREVRANGEBYSCORE', line, before, '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1]
)
local answer = {}
for at = 1, #found, 2 do
  answer[at] = found[at + 1]
  answer[at + 1] = redis.call('HGET', prefix .. 'audit', found[at])
end
return answer
