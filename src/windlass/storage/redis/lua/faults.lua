-- By what some jobs have failed.
-- use: matching
-- reads only
-- ARGV: task ('': any), ids
-- Returns for each its number, queue, task, the kind of its error, the frame, and the beginning of its
-- text; '' for one that does not count.
local TEXT_BYTES = 2000 -- 500 characters at most are shown
local answer = {}
for i = 2, #ARGV do
  local kept = matching.record('state', ARGV[i])
  local state, flags, seq, _, _, queue, task
  if kept then
    state, flags, seq, _, _, queue, task = glance(kept)
  end
  answer[i - 1] = ''
  if state == FAILED and (ARGV[1] == '' or ARGV[1] == task) then
    local kind, words = matching.error_of({ id = ARGV[i], flags = flags })
    local frame = redis.call('HGET', prefix .. 'frames', ARGV[i]) or ''
    answer[i - 1] = { seq, queue, task, kind, frame, string.sub(words, 1, TEXT_BYTES) }
  end
end
return answer
