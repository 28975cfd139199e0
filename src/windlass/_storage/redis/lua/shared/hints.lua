-- Hints for idle workers. Each waits for an entry in one of the lists `work:<queue>` and takes it out. So
-- about as many workers look as there are jobs, however many are idle.
-- use: jobs

local MOST_HINTS = 16 -- in one list. A claim that leaves work behind leaves a hint, too.
local HINTS = { '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '' }
local hints = {}

-- This many more jobs of a queue can be claimed.
function hints.add(queue, number)
  pending.hints[queue] = (pending.hints[queue] or 0) + number
end

-- A worker must look at this queue, if only to learn when its next job is due.
function hints.tell(queue)
  pending.hints[queue] = pending.hints[queue] or 1
end

-- A whole queue gives jobs again.
function hints.open(queue)
  hints.add(queue, math.max(1, redis.call('HGET', prefix .. 'counts', WAITING .. queue) or 1))
end

-- Store the hints of this call. `settle` does it, too.
function hints.flush()
  for queue, number in pairs(pending.hints) do
    local list = prefix .. 'work:' .. queue
    if redis.call('RPUSH', list, unpack(HINTS, 1, math.min(number, MOST_HINTS))) > MOST_HINTS then
      redis.call('LTRIM', list, 0, MOST_HINTS - 1)
    end
  end
  pending.hints = nil
end

-- A claim has left this many jobs in a queue: hints of this call give way to that.
function hints.leave(queue, number)
  local list = prefix .. 'work:' .. queue
  pending.hints[queue] = nil
  if number == 0 then
    redis.call('DEL', list)
  elseif redis.call('EXISTS', list) == 0 then
    hints.add(queue, number)
  end
end
