-- QueueStore.queues.
-- Answer: queue and settings, ...; the paused queues; queue and brake, ...
-- reads only

return {
  redis.call('HGETALL', prefix .. 'settings'),
  redis.call('SMEMBERS', prefix .. 'paused'),
  redis.call('HGETALL', prefix .. 'brakes'),
}
