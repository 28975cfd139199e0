-- LimitStore.breakers.
-- ARGV: names. Answer: of each its failures, how often it opened and until when it is open (0: it never
-- was), together; then its running claims.
-- reads only
-- use: gates

local answer = {}
for i, name in ipairs(ARGV) do
  answer[2 * i - 1], answer[2 * i] = breaker_of(name), used(name)
end
return answer
