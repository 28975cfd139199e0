-- Tasks of waiting and running jobs.
-- use: lanes
-- reads only
-- ARGV: how many waiting jobs to look at, at most
-- Answer: 1 where all waiting jobs were looked at, else 0; task and number of the waiting ones, ...;
-- task and number of the running ones, ...
local AT_ONCE = 100 -- records read together
local BYTES = 16000000 -- of the records of waiting jobs: each holds its arguments
local left, complete, read = tonumber(ARGV[1]), 1, 0
local waiting, running = {}, {}

local function add(tasks, task)
  tasks[task] = (tasks[task] or 0) + 1
end

-- Waiting jobs by the task in their asked records. Nothing else of these is needed.
local function count_waiting(ids)
  for first = 1, #ids, AT_ONCE do
    if read > BYTES then
      complete = 0
      return
    end
    local last = math.min(first + AT_ONCE - 1, #ids)
    for _, asked in ipairs(redis.call('HMGET', prefix .. 'jobs', unpack(ids, first, last))) do
      local fine, _, _, _, _, _, _, task = pcall(struct.unpack, ASKED, asked or '')
      if fine then
        add(waiting, task)
        read = read + #asked
      end
    end
  end
end

local function count_running(ids)
  for first = 1, #ids, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, #ids)
    for _, kept in ipairs(redis.call('HMGET', prefix .. 'state', unpack(ids, first, last))) do
      local state, _, _, _, _, _, task = glance(kept or '')
      if state then
        add(running, task)
      end
    end
  end
end

-- A place holds the id between its order and its kind.
local function count_line(line)
  local places = redis.call('ZRANGE', prefix .. line, 0, left)
  if #places > left then
    complete = 0
    places[#places] = nil
  end
  left = left - #places
  local ids = {}
  for i, place in ipairs(places) do
    ids[i] = string.sub(place, 18, 33)
  end
  count_waiting(ids)
end

local function count_queue(queue)
  count_line('later:' .. queue)
  count_line('ready:' .. queue)
  count_line('solo:' .. queue)
  local names = redis.call('SMEMBERS', prefix .. 'bays:' .. queue)
  bays.load(names)
  for _, name in ipairs(names) do
    for _, lane in ipairs(bays.lanes(name, left + 1)) do
      count_line('lane:' .. lane)
    end
  end
end

local function pairs_of(tasks)
  local answer = {}
  for task, number in pairs(tasks) do
    answer[#answer + 1] = task
    answer[#answer + 1] = number
  end
  return answer
end

for _, field in ipairs(redis.call('HKEYS', prefix .. 'counts')) do
  if string.sub(field, 1, 1) == '0' then
    count_queue(string.sub(field, 2))
  end
end
for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'holders')) do
  count_running(redis.call('SMEMBERS', prefix .. 'running:' .. worker))
end
return { complete, pairs_of(waiting), pairs_of(running) }
