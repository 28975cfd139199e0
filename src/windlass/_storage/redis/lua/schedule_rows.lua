-- ScheduleStore.rows.
-- Answer: name and record, ...; name and when it was declared, ...
-- reads only

return {
  redis.call('HGETALL', prefix .. 'schedules'),
  redis.call('HGETALL', prefix .. 'declared'),
}
