-- ScheduleStore.pause and ScheduleStore.resume.
-- use: jobs audits
-- ARGV: '1' to pause, '' to resume; note
if ARGV[1] == '1' then
  redis.call('SET', prefix .. 'schedules_paused', string.format('%.0f', now), 'NX')
else
  redis.call('DEL', prefix .. 'schedules_paused')
  wake()
  notify('schedule')
end
audits.keep(ARGV[2], 1)
return 1
