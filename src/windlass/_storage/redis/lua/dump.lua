-- Jobs by number, with all that is stored of them.
-- use: shown
-- reads only
-- ARGV: the number they come after, limit
-- Returns the number of the last one that was looked at ('': there is none); then for each what
-- shown.lua says, until when it holds its key (0: no end), its history, and its log chunks with their
-- places; and how its flow has ended a member: 'stopped', 'skipped' or ''. Members of flows that are being
-- deleted are left out.
local BYTES = 2000000

local function is_deleted(part)
  return redis.call('HEXISTS', prefix .. 'flows', string.sub(part, 1, 16)) == 0
end

local function ended_by_flow(job)
  for _, how in ipairs({ 'stopped', 'skipped' }) do
    if redis.call('ZSCORE', prefix .. how .. ':' .. job.part, job.id) then
      return how
    end
  end
end

local some = redis.call(
  'ZRANGEBYSCORE', prefix .. 'all', '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2]
)
local found, read, at = { '' }, 0, 1
while at < #some and read < BYTES do
  local id = some[at]
  local job = load_job(id)
  if job and not (job.part and is_deleted(job.part)) then
    local row = show(job)
    local held = row[6] == 1 and redis.call('HGET', prefix .. 'keys', special_of(job)[1])
    row[10] = held and select(2, struct.unpack('>c16d', held)) or 0
    row[11] = redis.call('LRANGE', prefix .. 'history:' .. id, 0, -1)
    row[12] = redis.call('HGETALL', prefix .. 'logs:' .. id)
    row[13] = job.part and job.finished > 0 and ended_by_flow(job) or ''
    found[#found + 1] = row
    read = read + #job.asked + #(job.kept or '')
  end
  found[1] = some[at + 1]
  at = at + 2
end
return found
