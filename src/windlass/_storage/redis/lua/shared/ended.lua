-- Ended jobs, apart by state and queue because queues keep them for different times; and of each
-- state the queues by their oldest one, so that no caller goes through all queues. Members of flows
-- have lines of their own, with 'm' before the state's digit: they are deleted with their flows.
-- use: jobs

-- The state as these lines name it.
local function ended_as(job)
  return job.part and 'm' .. job.state or job.state
end

local function ended_line(state, queue)
  return prefix .. 'finished:' .. state .. ':' .. queue
end

-- Jobs of this queue have ended now, or did so at `at`.
local function note_ended(state, queue, at)
  redis.call('ZADD', prefix .. 'oldest:' .. state, 'LT', at or now, queue)
end

-- The job has ended, and its state says so.
local function add_ended(job)
  local state = ended_as(job)
  redis.call('ZADD', ended_line(state, job.queue), now, job.id)
  note_ended(state, job.queue)
end

-- Some jobs of a queue are not among the ended ones any more. `settle_ended` follows.
local function drop_ended(state, queue, ids)
  wide('ZREM', ended_line(state, queue), ids, 1)
  pending.thinned[state .. queue] = { state, queue }
end

-- Make the list of queues follow the lines that lost jobs.
local function settle_ended()
  for _, line in pairs(pending.thinned) do
    local first = redis.call('ZRANGE', ended_line(line[1], line[2]), 0, 0, 'WITHSCORES')
    if first[2] then
      redis.call('ZADD', prefix .. 'oldest:' .. line[1], first[2], line[2])
    else
      redis.call('ZREM', prefix .. 'oldest:' .. line[1], line[2])
    end
  end
  pending.thinned = nil
end
