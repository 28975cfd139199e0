-- FlowStore.settle.
-- ARGV: how many jobs at most. Answer: how many were settled.
-- use: settling
-- runs when memory is full

local done = settling.run(tonumber(ARGV[1]))
settle()
if done > 0 then
  wake()
end
return done
