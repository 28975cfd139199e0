-- New jobs of flows.
-- use: storing

local new_members = {}

-- The answer for an id that is stored, or a key that is held, also by a job of the same call; nil: none.
function new_members.conflict(new)
  if new.again[1] then
    return { 'id', new.ids[new.again[1][1]] }
  end
  local taken = {}
  for i = 1, new.many do
    local key = has(new.marks[i], KEYED) and new.specials[i][1]
    if key then
      local holder = taken[key] or key_holder(key)
      if holder then
        return { 'key', key, holder }
      end
      taken[key] = new.ids[i]
    end
  end
end
