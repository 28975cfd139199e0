-- JournalStore.append_logs.
-- ARGV: for each chunk id and number of its job, its place (`>I4I4`: claim number and number), and its
--   lines, packed
for i = 1, #ARGV, 4 do
  local id = ARGV[i]
  if redis.call('ZSCORE', prefix .. 'all', id) == ARGV[i + 1]
    and redis.call('HSETNX', prefix .. 'logs:' .. id, ARGV[i + 2], ARGV[i + 3]) == 1 then
    redis.call('SADD', prefix .. 'journal', id)
  end
end
return redis.status_reply('OK')
