-- FlowStore.settle.
-- ARGV: how many jobs at most. Answer: how many were settled: fewer, too, where they are much work.
-- use: returning
-- runs when memory is full

local limit = tonumber(ARGV[1])
local done, spent = settling.run(limit)
if spent < limit then
  done = done + returning.run(settling.few(limit - spent))
end
settle()
if done > 0 then
  wake()
end
return done
