-- LimitStore.breakers.
-- ARGV: names. Answer: of each its failures, how often it opened and until when it is open (0: it never
-- was).
-- reads only
-- use: gates

local answer = {}
for i, name in ipairs(ARGV) do
  answer[i] = breaker_of(name)
end
return answer
