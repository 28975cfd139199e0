-- The jobs in some states, if they are few.
-- use: lanes
-- reads only
-- ARGV: most, queue and worker ('' each for any), the first and the last instant at which they ended (as
--   ZRANGEBYSCORE takes them), state digits, ...; 'r' for waiting ones that retry
-- Returns id and number of each (`>c16d`), all in one string and in no order; nil if they are more.
local most, its_queue, worker = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local from, till = ARGV[4], ARGV[5]
local total, gatherings, found = 0, {}, {}

-- The number of further ones, which `gather` will give.
local function expect(number, gather)
  total = total + number
  gatherings[#gatherings + 1] = gather
end

local function add(ids)
  local numbers = read_all('ZMSCORE', prefix .. 'all', ids)
  for i, id in ipairs(ids) do
    if numbers[i] then
      found[#found + 1] = struct.pack('>c16d', id, tonumber(numbers[i]))
    end
  end
end

local function add_line(name)
  for _, place in ipairs(redis.call('ZRANGE', prefix .. name, 0, -1)) do
    local _, seq = place_order(place)
    found[#found + 1] = struct.pack('>c16d', string.sub(place, 18, 33), seq)
  end
end

-- Queues with waiting jobs.
local function busy_queues()
  local queues = {}
  for _, field in ipairs(redis.call('HKEYS', prefix .. 'counts')) do
    local queue = string.sub(field, 2)
    if string.sub(field, 1, 1) == '0' and (its_queue == '' or queue == its_queue) then
      queues[#queues + 1] = queue
    end
  end
  return queues
end

local function expect_waiting(queue)
  if redis.call('HEXISTS', prefix .. 'blocked', queue) == 1 then
    expect(math.huge) -- members of flows that are in no line
    return
  end
  expect(tonumber(redis.call('HGET', prefix .. 'counts', '0' .. queue)), function()
    add_line('ready:' .. queue)
    add_line('later:' .. queue)
    add_line('solo:' .. queue)
    local names = redis.call('SMEMBERS', prefix .. 'bays:' .. queue)
    bays.load(names)
    for _, name in ipairs(names) do
      for _, lane in ipairs(bays.lanes(name, most)) do
        add_line('lane:' .. lane)
      end
    end
  end)
end

local function expect_retrying(queue)
  local line = prefix .. 'retrying:' .. queue
  expect(redis.call('ZCARD', line), function()
    add(redis.call('ZRANGE', line, 0, -1))
  end)
end

local function expect_running()
  local holders = worker == '' and redis.call('SMEMBERS', prefix .. 'holders') or { worker }
  for _, holder in ipairs(holders) do
    local set = prefix .. 'running:' .. holder
    expect(redis.call('SCARD', set), function()
      add(redis.call('SMEMBERS', set))
    end)
  end
end

local function expect_ended(digit)
  -- Each queue there has one at least: so few are looked at, however many there are.
  local queues = its_queue == '' and redis.call('ZRANGE', prefix .. 'oldest:' .. digit, 0, most)
    or { its_queue }
  for _, queue in ipairs(queues) do
    local line = prefix .. 'finished:' .. digit .. ':' .. queue
    expect(redis.call('ZCOUNT', line, from, till), function()
      add(redis.call('ZRANGEBYSCORE', line, from, till))
    end)
    if total > most then
      return
    end
  end
end

for i = 6, #ARGV do
  if ARGV[i] == 'r' or ARGV[i] == '0' then
    for _, queue in ipairs(busy_queues()) do
      (ARGV[i] == 'r' and expect_retrying or expect_waiting)(queue)
    end
  elseif tonumber(ARGV[i]) == RUNNING then
    expect_running()
  else
    expect_ended(ARGV[i])
    expect_ended('m' .. ARGV[i])
  end
  if total > most then
    return false
  end
end
for _, gather in ipairs(gatherings) do
  gather()
end
return table.concat(found)
