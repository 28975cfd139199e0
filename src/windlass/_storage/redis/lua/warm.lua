-- QueueStore.warm.
-- ARGV: queue, note
-- use: brakes hints audits

local brake = brake_of(ARGV[1])
if brake then
  set_brake(ARGV[1], 0, 0, brake.most)
end
audits.keep(ARGV[2], 1)
wake({ [ARGV[1]] = true })
hints.open(ARGV[1])
hints.flush()
return 1
