-- Another secret for this installation, if the stored one is the old one.
-- ARGV: the new one, the old one ('' for none)
-- Returns what is stored then.
local stored = redis.call('GET', prefix .. 'secret') or ''
if stored == ARGV[2] then
  redis.call('SET', prefix .. 'secret', ARGV[1])
  stored = ARGV[1]
end
return stored
