-- JournalStore.append_logs.
-- ARGV: for each chunk the id, its place (`>I4I4`: claim number and number), and its lines, packed
for i = 1, #ARGV, 3 do
  local id = ARGV[i]
  if redis.call('HEXISTS', prefix .. 'jobs', id) == 1
    and redis.call('HSETNX', prefix .. 'logs:' .. id, ARGV[i + 1], ARGV[i + 2]) == 1 then
    redis.call('SADD', prefix .. 'journal', id)
  end
end
return redis.status_reply('OK')
