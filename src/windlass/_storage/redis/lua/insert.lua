-- JobStore.insert.
-- ARGV: two for each job, as shared/storing.lua says.
-- Answer: as `store_new` there. Or 'limit', an undefined name, and the names that are; or 'key',
-- a key that is held and may not be, and the holder; or 'id' and one that names another call: nothing is
-- stored.
-- A batch is all or none, so it is one script: 10,000 plain jobs keep the server from everybody else
-- for a third of a second. Larger ones are stored, too; producers that can should split them.
-- use: storing

if #ARGV == 0 then
  return {}
end
local new = read_new(ARGV)
local refusal = unknown_limit(new) or refused_id(new) or refused_key(new)
if refusal then
  return refusal
end
local answers, queues = store_new(new)
settle()
wake(queues)
return answers
