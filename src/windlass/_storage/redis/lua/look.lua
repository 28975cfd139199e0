-- Those of some jobs that are wanted.
-- use: matching shown
-- reads only
-- ARGV: what is wanted (see shared/matching.lua), limit, ids
-- Returns how many were looked at, how many bytes were read, when the last one was made; then what
-- shown.lua says of each that matches.
local BYTES = 2000000
local wanted, limit = cmsgpack.unpack(table.remove(ARGV, 1)), tonumber(table.remove(ARGV, 1))
local found, looked = { 0, 0, 0 }, 0
matching.begin()
while looked < #ARGV and #found - 3 < limit and matching.read < BYTES do
  looked = looked + 1
  local job = matching.job(ARGV, looked, wanted)
  if job then
    found[#found + 1] = show(job)
  end
end
local asked = redis.call('HGET', prefix .. 'jobs', ARGV[looked])
local fine, made = pcall(struct.unpack, '>xxi8', asked or '')
found[1], found[2], found[3] = looked, matching.read, fine and made or 0
return found
