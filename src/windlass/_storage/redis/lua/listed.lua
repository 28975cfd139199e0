-- The next members of some lines, merged, in the order of score and member.
-- reads only
-- ARGV: the last place: score ('now': from now on), and member ('': none of that score yet); 1 to go
--   backwards; how many; 'all', or 'later' and queue ('': all of them), or 'ended', queue ('': all)
--   and state digits. Of those that wait only what is due after now.
-- Returns score and member of each in one list.
local CHUNK = 16 -- members of a line that are read together
local at, tail, back, most = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local bound = ARGV[5] == 'later' and now or -math.huge
if at == 'now' then
  at = string.format('%.0f', now + 1)
end

-- Whether a comes before b, byte by byte as sorted sets have them: `<` goes by the server's language.
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- The rank of the first member behind the place.
local function seek(line)
  local first = redis.call('ZCOUNT', line, '-inf', '(' .. at)
  if tail == '' then
    return back and first - 1 or first
  end
  local last = first + redis.call('ZCOUNT', line, at, at)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local member = redis.call('ZRANGE', line, middle, middle)[1]
    if precedes(member, tail) or not back and member == tail then
      first = middle + 1
    else
      last = middle
    end
  end
  return back and first - 1 or first
end

-- Read the next members of a line; nil at its end.
local function read_on(line)
  local low, high = line.rank, line.rank + CHUNK - 1
  if back then
    low, high = math.max(line.rank - CHUNK + 1, 0), line.rank
  end
  local some = high >= 0 and redis.call('ZRANGE', line.key, low, high, 'WITHSCORES') or {}
  line.rank = back and low - 1 or high + 1
  line.members, line.scores, line.at = {}, {}, 1
  for i = 1, #some, 2 do
    local n = back and (#some - i + 1) / 2 or (i + 1) / 2
    line.members[n], line.scores[n] = some[i], tonumber(some[i + 1])
  end
  return line.members[1] and line or nil
end

local function comes_first(one, other)
  local x, y = one.scores[one.at], other.scores[other.at]
  if x ~= y then
    return (x < y) ~= back
  end
  local a, b = one.members[one.at], other.members[other.at]
  if a == b then
    return false
  end
  return precedes(a, b) ~= back
end

-- Lines by their heads: a heap.
local heap = {}

local function sink(n)
  while true do
    local best = n
    for child = 2 * n, math.min(2 * n + 1, #heap) do
      if comes_first(heap[child], heap[best]) then
        best = child
      end
    end
    if best == n then
      return
    end
    heap[n], heap[best] = heap[best], heap[n]
    n = best
  end
end

local function add(name)
  local key = prefix .. name
  local line = read_on({ key = key, rank = seek(key) })
  if line then
    heap[#heap + 1] = line
  end
end

if ARGV[5] == 'all' then
  add('all')
elseif ARGV[5] == 'later' then
  local queues = ARGV[6] ~= '' and { ARGV[6] } or redis.call('ZRANGE', prefix .. 'due', 0, -1)
  for _, queue in ipairs(queues) do
    add('later:' .. queue)
  end
else
  for i = 7, #ARGV do
    for _, state in ipairs({ ARGV[i], 'm' .. ARGV[i] }) do
      local queues = ARGV[6] ~= '' and { ARGV[6] }
        or redis.call('ZRANGE', prefix .. 'oldest:' .. state, 0, -1)
      for _, queue in ipairs(queues) do
        add('finished:' .. state .. ':' .. queue)
      end
    end
  end
end
for n = math.floor(#heap / 2), 1, -1 do
  sink(n)
end

local found = {}
while #heap > 0 and #found < 2 * most do
  local line = heap[1]
  if back and line.scores[line.at] <= bound then
    break
  end
  found[#found + 1] = string.format('%.0f', line.scores[line.at])
  found[#found + 1] = line.members[line.at]
  line.at = line.at + 1
  if not line.members[line.at] and not read_on(line) then
    heap[1] = heap[#heap]
    heap[#heap] = nil
  end
  sink(1)
end
return found
