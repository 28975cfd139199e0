-- Give up every role a worker holds. Roles are few.
-- ARGV: worker
-- runs when memory is full
local roles = redis.call('HGETALL', prefix .. 'roles')
for at = 1, #roles, 2 do
  if cmsgpack.unpack(roles[at + 1])[1] == ARGV[1] then
    redis.call('HDEL', prefix .. 'roles', roles[at])
  end
end
