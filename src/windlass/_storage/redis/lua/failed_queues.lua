-- The lines of failed jobs, as failed.lua names them: of a queue, or of all ('').
-- reads only
-- ARGV: queue
local lines = {}
for _, state in ipairs({ '3:', 'm3:' }) do
  local queues = ARGV[1] ~= '' and { ARGV[1] }
    or redis.call('ZRANGE', prefix .. 'oldest:' .. string.sub(state, 1, -2), 0, -1)
  for _, queue in ipairs(queues) do
    lines[#lines + 1] = state .. queue
  end
end
return lines
