-- Schedules by name.
-- reads only
-- ARGV: names. Answer: of each its record and when it was declared, '' each where there is none.
local answer = {}
for i, name in ipairs(ARGV) do
  answer[2 * i - 1] = redis.call('HGET', prefix .. 'schedules', name) or ''
  answer[2 * i] = redis.call('HGET', prefix .. 'declared', name) or ''
end
return answer
