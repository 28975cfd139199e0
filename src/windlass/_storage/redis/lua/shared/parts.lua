-- When a part of a flow opens, and what it tells the parts after it: the rules of `_core/flows/part.py`.
--
-- A part: kind, on (0: it runs on success, 1: on failure), told (what it told last), due (1: it is among those
-- to be settled); the counts of its jobs; and of the parts it waits for how many have not ended (waiting),
-- have failures that matter here (broken), and were not needed (unneeded); of the flows that its jobs added how
-- many have not ended (adding), and have failed (added_broken). first: of the flow that a job added, the number of
-- its first part, or 0. counts_for: of the join of an added flow, the part that it counts for plus 1, or 0.

local parts = { JOBS = 0, JOIN = 1, END = 2, CALLBACK = 3, ADDED = 4 }
local OVER, BROKEN, UNNEEDED = 1, 2, 4 -- what a part tells, added up

-- What becomes of its blocked jobs: 'wait', 'open', 'stop' or 'skip'.
function parts.decide(part, cancelled)
  local at_once = part.kind == parts.JOBS or part.kind == parts.JOIN or part.kind == parts.ADDED
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
  return part.unneeded > 0 and part.kind ~= parts.END and part.kind ~= parts.ADDED and 'skip' or 'open'
end

-- What it tells those that wait for it. A part without jobs passes on what was decided about it. returning: a
-- retry has not reached all its jobs, so it has not ended.
function parts.tidings(part, cancelled, returning)
  if part.total > 0 then
    local over = part.open == 0 and part.adding == 0 and not returning
    local failures = part.failed + part.cancelled + part.stopped + part.added_broken
    return (over and OVER or 0) + (failures > 0 and BROKEN or 0)
      + (over and part.skipped == part.total and UNNEEDED or 0)
  end
  local decision = parts.decide(part, cancelled)
  -- A failure is told at once, the end only when nothing is open: a lenient follower waits for it.
  return (part.waiting + part.adding == 0 and OVER or 0)
    + ((decision == 'stop' or part.added_broken > 0) and BROKEN or 0)
    + (decision == 'skip' and UNNEEDED or 0)
end

-- Which of its ended jobs are blocked again, before anything else is done. Stopped ones come back to be skipped,
-- too: they count as failures, and nothing failed.
function parts.coming_back(part, decision)
  local ends = {}
  if part.stopped > 0 and decision ~= 'stop' then
    ends[1] = 'stopped'
  end
  if part.skipped > 0 and (decision == 'wait' or decision == 'open') then
    ends[#ends + 1] = 'skipped'
  end
  return ends
end

-- Whether jobs of it are to be placed, ended, or blocked again.
function parts.is_due(part, cancelled)
  local decision = parts.decide(part, cancelled)
  if part.blocked > 0 and decision ~= 'wait' then
    return true
  elseif part.stopped + part.skipped == 0 then
    return false -- most
  end
  return #parts.coming_back(part, decision) > 0
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

-- Count what a flow that its jobs added tells now, in place of what it told.
function parts.learn_added(part, before, after)
  part.adding = part.adding - parts.change(before, after, OVER)
  part.added_broken = part.added_broken + parts.change(before, after, BROKEN)
end

-- Where it stands in the order of the graph: behind all that it depends on.
function parts.rank(part)
  local number = struct.unpack('>I4', part.key, 17)
  if part.kind == parts.END or part.kind == parts.CALLBACK then
    return 2 ^ 60 + number
  end
  return number - part.first * 2 ^ 21
end

-- The number that a part with this rank has, and its `first`. It is none of the last parts.
function parts.place(rank)
  local first = -math.floor(rank / 2 ^ 21)
  return rank + first * 2 ^ 21, first
end
