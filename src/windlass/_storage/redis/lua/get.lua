-- Jobs by id.
-- use: shown
-- reads only
-- ARGV: id, ...
-- Returns for each what shown.lua says, or '' where it is not stored.
local found = {}
for i, job in ipairs(load_jobs(ARGV)) do
  found[i] = job and show(job) or ''
end
return found
