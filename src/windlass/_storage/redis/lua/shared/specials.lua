-- What jobs with limits ask for, unpacked. Where the server keeps this code loaded, the answers outlast a
-- call: they follow from the packed bytes alone, and to make them anew costs a limited job a fifth of its
-- price. No other part keeps anything.

local MOST_SPECIALS, LARGEST_SPECIAL = 2000, 256 -- how many, and bytes of each
local specials, known_specials = {}, 0

local function gate_of(use)
  return use[2] == '' and use[1] or use[1] .. ':' .. use[2]
end

local ONE_USE = '\149\160\160\0\145\147' -- how most begin: no key, one limit; its name, its key and its cost follow
local TEXT_BASE, TEXT_LAST = 160, 191 -- the bytes before texts of less than 32 bytes; their length is added
local FLOAT = 203

-- The same as `read_special` for one limit and short texts, at half the price; nil for others.
local function read_one_use(packed)
  local byte, sub = string.byte, string.sub
  local size = sub(packed, 1, 6) == ONE_USE and byte(packed, 7)
  if not size or size < TEXT_BASE or size > TEXT_LAST then
    return nil
  end
  local last = 7 + size - TEXT_BASE
  local name = sub(packed, 8, last)
  size = byte(packed, last + 1) or 0
  local key = sub(packed, last + 2, last + 1 + size - TEXT_BASE)
  local at = last + 2 + size - TEXT_BASE -- of the cost
  local kind = size >= TEXT_BASE and size <= TEXT_LAST and byte(packed, at)
  local lane = byte(packed, at + 9)
  if kind ~= FLOAT or not lane or lane < TEXT_BASE or lane > TEXT_LAST
    or #packed ~= at + 9 + lane - TEXT_BASE then
    return nil
  end
  local cost = struct.unpack('>d', packed, at + 1)
  local use = { name, key, cost }
  return { '', '', 0, { use }, sub(packed, at + 10), gates = { gate_of(use) } }
end

-- Raises an error where it cannot be read.
local function read_special(packed)
  local special = read_one_use(packed)
  if special then
    return special
  end
  special = cmsgpack.unpack(packed)
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
