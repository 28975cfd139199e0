-- When a part of a flow opens, and what it tells the parts after it: the rules of `_core/flows/part.py`.
--
-- A part: kind, on (0: it runs on success, 1: on failure), told (what it told last), due (1: it is among those
-- to be settled); the counts of its jobs; and of the parts it waits for how many have not ended (waiting),
-- have failures that matter here (broken), and were not needed (unneeded).

local parts = { JOBS = 0, JOIN = 1, END = 2, CALLBACK = 3 }
local OVER, BROKEN, UNNEEDED = 1, 2, 4 -- what a part tells, added up

-- What becomes of its blocked jobs: 'wait', 'open', 'stop' or 'skip'.
function parts.decide(part, cancelled)
  local at_once = part.kind == parts.JOBS or part.kind == parts.JOIN
  if at_once and (cancelled or part.broken > 0 and part.on == 0) then
    return 'stop'
  elseif part.waiting > 0 then
    return 'wait'
  elseif part.on == 1 then
    return part.broken > 0 and not cancelled and 'open' or 'skip'
  elseif part.broken > 0 then
    return part.kind == parts.CALLBACK and 'skip' or 'stop'
  end
  -- A flow whose last parts were not needed has succeeded.
  return part.unneeded > 0 and part.kind ~= parts.END and 'skip' or 'open'
end

-- What it tells those that wait for it. A part without jobs passes on what was decided about it.
function parts.tidings(part, cancelled)
  if part.total > 0 then
    local over, failures = part.open == 0, part.failed + part.cancelled + part.stopped
    return (over and OVER or 0) + (failures > 0 and BROKEN or 0)
      + (over and part.skipped == part.total and UNNEEDED or 0)
  end
  local decision = parts.decide(part, cancelled)
  -- A failure is told at once, the end only when nothing is open: a lenient follower waits for it.
  return (part.waiting == 0 and OVER or 0) + (decision == 'stop' and BROKEN or 0)
    + (decision == 'skip' and UNNEEDED or 0)
end

-- Whether jobs of it are to be placed, ended, or blocked again.
function parts.is_due(part, cancelled)
  local decision = parts.decide(part, cancelled)
  if part.blocked > 0 and decision ~= 'wait' then
    return true
  end
  return part.stopped + part.skipped > 0 and (decision == 'wait' or decision == 'open')
end

function parts.change(before, after, fact)
  return (has(after, fact) and 1 or 0) - (has(before, fact) and 1 or 0)
end

-- Count what a part before it tells now, in place of what it told.
function parts.learn(part, before, after, strict)
  part.waiting = part.waiting - parts.change(before, after, OVER)
  if strict then
    part.broken = part.broken + parts.change(before, after, BROKEN)
    part.unneeded = part.unneeded + parts.change(before, after, UNNEEDED)
  end
end
