-- What jobs with limits ask for, unpacked. Where the server keeps this code loaded, the answers outlast a
-- call: they follow from the packed bytes alone, and to make them anew costs a limited job a fifth of its
-- price. No other part keeps anything.

local MOST_SPECIALS, LARGEST_SPECIAL = 2000, 256 -- how many, and bytes of each
local specials, known_specials = {}, 0

local function gate_of(use)
  return use[2] == '' and use[1] or use[1] .. ':' .. use[2]
end

-- Raises an error where it cannot be read.
local function read_special(packed)
  local special = cmsgpack.unpack(packed)
  assert(#special == 5)
  special.gates = {} -- of its uses, in their order
  for i, use in ipairs(special[4]) do
    special.gates[i] = gate_of(use)
  end
  return special
end

-- Unpack what a job asks for; many ask for the same. False: it cannot be read. Nothing may change it.
local function unpack_special(packed)
  local known = specials[packed]
  if known == nil then
    local fine, special = pcall(read_special, packed)
    known = fine and special
    if known and known[1] == '' and #packed <= LARGEST_SPECIAL then -- keys are hardly ever the same
      if known_specials == MOST_SPECIALS then
        specials, known_specials = {}, 0
      end
      specials[packed], known_specials = known, known_specials + 1
    end
  end
  return known
end
