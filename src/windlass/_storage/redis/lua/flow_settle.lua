-- FlowStore.settle.
-- ARGV: how many jobs at most. Answer: how many were settled.
-- use: returning
-- runs when memory is full

local limit = tonumber(ARGV[1])
local done = settling.run(limit)
if done < limit then
  done = done + returning.run(limit - done)
end
settle()
if done > 0 then
  wake()
end
return done
