-- Lines that are merged by their heads.
-- use: lanes

local LARGEST_BITE = 64
local NO_ROWS = {}
local NO_HEAD = 1 / 0 -- the priority of a line that has ended

-- A line: the members of a sorted set in order, read in chunks that grow. No member leaves a line between two
-- reads of it, so a number of members to skip is a place to continue from.
local function new_line(key, bite, rank)
  return {
    key = key, bite = bite, rank = rank, skip = 0, rows = NO_ROWS, next = 1, more = true,
    priority = 0, due = 0, seq = 0, -- of its head
    bay = false, need = false, ahead = 0,
  }
end

-- The line of a lane, whose first jobs were read: `rows`, as many as `bite` where there are more. There are as many
-- of these tables as lanes are visited, so they have few fields. `lone_in`: the lone bay where it stands, if
-- `lone_bays.follow` may write both.
local function lane_line(lane, rows, bite)
  return {
    lane = lane, rows = rows, next = 1, more = #rows == 2 * bite, priority = 0, due = 0, seq = 0,
    lone_in = false,
  }
end

local function read_lane(lane)
  return lane_line(lane, redis.call('ZRANGE', prefix .. 'lane:' .. lane, 0, 1, 'WITHSCORES'), 2)
end

-- Read the next chunk of a line.
local function read_on(line)
  local read, bite = #line.rows / 2, line.bite or 2
  if read > 0 then
    bite = math.max(bite, math.min(2 * bite, LARGEST_BITE))
  end
  line.skip, line.bite = (line.skip or 0) + read, bite
  line.rows = redis.call(
    'ZRANGE', line.key or prefix .. 'lane:' .. line.lane, line.skip, line.skip + bite - 1, 'WITHSCORES'
  )
  line.next, line.more = 1, #line.rows == 2 * bite
end

-- The member at the head and its priority; nil: there is none.
local function line_head(line)
  if not line.rows[line.next] and line.more then
    read_on(line)
  end
  local member = line.rows[line.next]
  return member, member and tonumber(line.rows[line.next + 1])
end

local function advance(line)
  line.next = line.next + 2
end

-- --- a heap of lines by their heads ---

local function goes_before(a, b)
  if a.priority ~= b.priority then
    return a.priority < b.priority
  elseif a.due ~= b.due then
    return a.due < b.due
  elseif a.seq ~= b.seq then
    return a.seq < b.seq
  end
  return (a.rank or 0) < (b.rank or 0)
end

local function heap_push(heap, line)
  local at = #heap + 1
  heap[at] = line
  while at > 1 do
    local above = math.floor(at / 2)
    if not goes_before(line, heap[above]) then
      return
    end
    heap[at], heap[above] = heap[above], line
    at = above
  end
end

local function heap_pop(heap)
  local top, last = heap[1], table.remove(heap)
  if #heap > 0 then
    local at = 1
    heap[1] = last
    while true do
      local least = at
      for below = 2 * at, 2 * at + 1 do
        if heap[below] and goes_before(heap[below], heap[least]) then
          least = below
        end
      end
      if least == at then
        break
      end
      heap[at], heap[least] = heap[least], heap[at]
      at = least
    end
  end
  return top
end

-- Note the order of a line's head among others; without a head the line comes last, and the answer is false.
local function face(line)
  local member, priority = line_head(line)
  if not member then
    line.priority = NO_HEAD
    return false
  end
  line.priority, line.due, line.seq = priority, place_order(member)
  return true
end

local function push(heap, line)
  if face(line) then
    heap_push(heap, line)
  end
end
