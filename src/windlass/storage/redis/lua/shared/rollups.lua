-- Rollups: what the accepted finishes of one operation add to their minute.

local tallies = {}

-- As in core/rollup.py: exact below 8, then four per doubling.
local function bucket_of(us)
  if us < 8 then
    return math.max(us, 0)
  end
  local fraction, exponent = math.frexp(us)
  return (exponent - 1) * 4 + math.floor(fraction * 8) - 8
end

-- One accepted finish of a job. `whose`: the part of its state record that says worker, queue and
-- task.
local function tally(whose, verb, due, started)
  local counts = tallies[whose]
  if not counts then
    counts = {}
    tallies[whose] = counts
  end
  local wait, run = 'w' .. bucket_of(started - due), 'r' .. bucket_of(now - started)
  counts[verb] = (counts[verb] or 0) + 1
  counts[wait] = (counts[wait] or 0) + 1
  counts[run] = (counts[run] or 0) + 1
end

local function write_tallies()
  if not next(tallies) then
    return
  end
  local minute = string.format('%.0f', now - now % 60000000)
  redis.call('ZADD', prefix .. 'rollups', 'NX', minute, minute)
  for whose, counts in pairs(tallies) do
    local _, rest = struct.unpack('>Hc0', whose)
    local start = string.sub(whose, rest)
    for what, number in pairs(counts) do
      redis.call('HINCRBY', prefix .. 'rollups:' .. minute, start .. what, number)
    end
  end
  tallies = {}
end
