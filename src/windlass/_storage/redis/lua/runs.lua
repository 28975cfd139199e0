-- When the jobs that run were started.
-- use: jobs
-- reads only
-- ARGV: worker ('': all)
-- Returns id and instant of each (`>c16d`), all in one string and in no order.
local found = {}
local holders = ARGV[1] == '' and redis.call('SMEMBERS', prefix .. 'holders') or { ARGV[1] }
for _, holder in ipairs(holders) do
  local ids = redis.call('SMEMBERS', prefix .. 'running:' .. holder)
  for i, kept in ipairs(read_all('HMGET', prefix .. 'state', ids)) do
    local _, _, _, _, started = glance(kept or '')
    found[#found + 1] = struct.pack('>c16d', ids[i], started or 0)
  end
end
return table.concat(found)
