-- By what some jobs have failed.
-- use: jobs
-- reads only
-- ARGV: task ('': any), ids
-- Returns for each its number, queue, task, the kind of its error, the frame, and the beginning of its
-- text; '' for one that does not count.
local TEXT_BYTES = 2000 -- 500 characters at most are shown
local AT_ONCE = 50 -- records read together
local wanted = table.remove(ARGV, 1)

local function fault(kept, said, frame)
  local state, _, seq, _, _, queue, task = glance(kept)
  if state ~= FAILED or wanted ~= '' and wanted ~= task then
    return ''
  end
  local fine, parts = pcall(cmsgpack.unpack, said or '')
  parts = fine and type(parts) == 'table' and parts or {}
  return {
    seq, queue, task, parts[1] or '', frame or '', string.sub(parts[2] or '', 1, TEXT_BYTES),
  }
end

local answer = {}
for first = 1, #ARGV, AT_ONCE do
  local ids = { unpack(ARGV, first, math.min(first + AT_ONCE - 1, #ARGV)) }
  local kept = redis.call('HMGET', prefix .. 'state', unpack(ids))
  local said = redis.call('HMGET', prefix .. 'errors', unpack(ids))
  local frames = redis.call('HMGET', prefix .. 'frames', unpack(ids))
  for i = 1, #ids do
    answer[#answer + 1] = kept[i] and fault(kept[i], said[i], frames[i]) or ''
  end
end
return answer
