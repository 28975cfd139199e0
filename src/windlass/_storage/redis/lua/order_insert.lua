-- ActionStore.insert.
-- ARGV: note, then as insert.lua.
-- Answer: as insert.lua.
-- use: storing audits

local note = table.remove(ARGV, 1)
local new = read_new(ARGV)
local refusal = unknown_limit(new) or refused_id(new) or refused_key(new)
if refusal then
  return refusal
end
local answers, created = store_new(new), 0
for _, holder in ipairs(answers) do
  created = created + ((#holder < 2 or #holder == 18) and 1 or 0)
end
audits.keep(note, created)
settle()
wake()
return answers
