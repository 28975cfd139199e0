-- ActionStore.order.
-- ARGV: note, msgpack [the order's name, what it says, ...] (see shared/orders.lua), ids.
-- Answer: one character for each id: d done, r requested, ? unknown, s wrong state, k another job holds
-- its key. A note that is stored already changes nothing, and gets the answers it got then.
-- use: orders audits
-- runs when memory is full

local note = table.remove(ARGV, 1)
local order = cmsgpack.unpack(table.remove(ARGV, 1))
local known, _, given = audits.known(note)
if known then
  return given
end

local answers, effects = {}, 0
for i, id in ipairs(ARGV) do
  local job = load_job(id)
  answers[i] = job and orders[order[1]](job, unpack(order, 2)) or UNKNOWN_JOB
  if answers[i] == DONE or answers[i] == REQUESTED then
    effects = effects + 1
  end
end
local told = table.concat(answers)
audits.keep(note, effects, told)
settle()
if effects > 0 then
  wake()
end
if string.find(told, REQUESTED, 1, true) then
  notify('cancel')
end
return told
