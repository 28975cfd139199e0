-- OrderStore.insert.
-- ARGV: note, then as insert.lua.
-- Answer: as insert.lua, or as it was when this note was stored.
-- use: storing audits

local note = table.remove(ARGV, 1)
local known, _, given = audits.known(note)
if known and #given > 0 then
  return cmsgpack.unpack(given)
end
local new = read_new(ARGV)
local refusal = unknown_limit(new) or refused_key(new)
if refusal then
  return refusal
end
local before = {}
for id in pairs(new.known) do
  before[id] = true
end
local answers, created = store_new(new), 0
for i, id in ipairs(new.ids) do
  if answers[i] == '' and not before[id] then
    created, before[id] = created + 1, true
  end
end
audits.keep(note, created, cmsgpack.pack(answers))
settle()
wake()
return answers
