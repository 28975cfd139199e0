-- Jobs newest first, from one place downwards, a bounded number of them looked at.
-- use: matching shown
-- reads only
-- ARGV: what is wanted (see shared/matching.lua), before (a job number, or ''), limit, how many are
-- looked at
-- Returns the next cursor ('' at the end), how many were looked at, how many bytes were read, when the
-- last one was made; then what shown.lua says of each that matches.
local BYTES = 2000000
local wanted, limit = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[3])
local all, before = prefix .. 'all', ARGV[2] == '' and '+inf' or '(' .. ARGV[2]
local some = redis.call('ZREVRANGEBYSCORE', all, before, '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4])
local found = { '', 0, 0, 0 }
matching.begin()

local ids, looked = {}, 0
for at = 1, #some, 2 do
  ids[#ids + 1] = some[at]
end
while looked < #ids and #found - 4 < limit and matching.read < BYTES do
  looked = looked + 1
  local job = matching.job(ids, looked, wanted)
  if job then
    found[#found + 1] = show(job)
  end
end
if looked > 0 then
  local number = some[2 * looked]
  if number ~= redis.call('ZRANGE', all, 0, 0, 'WITHSCORES')[2] then
    found[1] = number
  end
  local asked = redis.call('HGET', prefix .. 'jobs', ids[looked])
  local fine, made = pcall(struct.unpack, '>xxi8', asked or '')
  found[2], found[3], found[4] = looked, matching.read, fine and made or 0
end
return found
