-- Claims of a worker to be cancelled.
-- use: workers
-- reads only
-- ARGV: worker
local asked = {}
for _, claim in ipairs(claims_of(ARGV[1])) do
  if claim[4] == 1 then
    asked[#asked + 1] = claim
  end
end
return asked
