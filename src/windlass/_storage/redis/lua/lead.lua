-- Take or renew the lease on a role.
-- ARGV: role, worker, lease
-- Returns 1, or 0 while another worker holds it.
-- roles: HASH role -> msgpack [worker, until]
-- runs when memory is full
local role, worker, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local held = redis.call('HGET', prefix .. 'roles', role)
if held then
  local holder, ends = unpack(cmsgpack.unpack(held))
  if holder ~= worker and now < ends then
    return 0
  end
end
redis.call('HSET', prefix .. 'roles', role, cmsgpack.pack({worker, now + lease}))
return 1
