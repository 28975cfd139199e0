-- Rollups: what the accepted finishes and the coalesced enqueues of one operation add to their minute.

-- As in _core/stats/rollup.py: exact below 8, then four per doubling.
local function bucket_of(us)
  if us < 8 then
    return us > 0 and us or 0
  end
  local fraction, exponent = math.frexp(us)
  return exponent * 4 + math.floor(fraction * 8) - 12
end

-- What was counted so far for a queue and a task: {verbs, waits, runs}.
local function tally_of(queue, task)
  local tasks = pending.tallies[queue]
  if not tasks then
    tasks = {}
    pending.tallies[queue] = tasks
  end
  local its = tasks[task]
  if not its then
    its = { {}, {}, {} }
    tasks[task] = its
  end
  return its
end

local function add(counts, what, number)
  counts[what] = (counts[what] or 0) + number
end

-- One accepted finish.
local function tally(queue, task, verb, due, started)
  local its = tally_of(queue, task)
  add(its[1], verb, 1)
  add(its[2], bucket_of(started - due), 1)
  add(its[3], bucket_of(now - started), 1)
end

-- One enqueue that a unique key answered with a stored job. It is counted as the verb 0, a claim, which
-- ends no run.
local function tally_coalesced(queue, task)
  add(tally_of(queue, task)[1], 0, 1)
end

local function write_tallies()
  if not next(pending.tallies) then
    return
  end
  local minute = string.format('%.0f', now - now % 60000000)
  redis.call('ZADD', prefix .. 'rollups', 'NX', minute, minute)
  local key = prefix .. 'rollups:' .. minute
  for queue, tasks in pairs(pending.tallies) do
    for task, its in pairs(tasks) do
      local start = struct.pack('>Hc0Hc0', #queue, queue, #task, task)
      for i, kind in ipairs({ '', 'w', 'r' }) do
        for what, number in pairs(its[i]) do
          redis.call('HINCRBY', key, start .. kind .. what, number)
        end
      end
    end
  end
  pending.tallies = nil
end
