-- QueueStore.warm.
-- ARGV: queue
-- use: brakes

local brake = brake_of(ARGV[1])
if brake then
  set_brake(ARGV[1], 0, 0, brake.most)
end
wake()
return 1
