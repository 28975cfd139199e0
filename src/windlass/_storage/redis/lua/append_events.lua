-- JournalStore.append_events.
-- use: events
-- ARGV: for each event the id, the instant and the record
-- Returns how many were kept.
local kept = 0
for i = 1, #ARGV, 3 do
  if redis.call('HEXISTS', prefix .. 'jobs', ARGV[i]) == 1 then
    events.keep(ARGV[i], ARGV[i + 1], ARGV[i + 2])
    kept = kept + 1
  end
end
return kept
