-- JobStore.active.
-- ARGV: queues. Answer: 1 if anything of them is running, or due while its queue is not paused.
-- reads only
-- use: lines

for _, queue in ipairs(ARGV) do
  if redis.call('HEXISTS', prefix .. 'counts', RUNNING .. queue) == 1 then
    return 1
  end
  if redis.call('SISMEMBER', prefix .. 'paused', queue) == 0 then
    local due = first_due(queue)
    if (due and due <= now) or redis.call(
      'EXISTS', prefix .. 'ready:' .. queue, prefix .. 'solo:' .. queue, prefix .. 'bays:' .. queue
    ) > 0 then
      return 1
    end
  end
end
return 0
