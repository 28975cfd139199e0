-- In front of everything: what a call is about, and how every call begins.
--
-- A server that keeps this code loaded keeps its locals from one call to the next. So what a call learns
-- is in tables that `begin` makes anew; all other tables of the shared parts hold functions only, but for
-- specials.lua.

local prefix -- what every key starts with, hash tag included: all keys are built from it
local now -- the instant of the operation in microseconds
local newer -- the stored layout, where it is a newer one than the caller knows: no claims then
local cache -- what the call has read: tables by name, each made when it is first used
local pending -- what the call has changed and must settle: tables by name, in the same way

local BY_NAME = {
  __index = function(tables, name)
    local new = {}
    tables[name] = new
    return new
  end,
}

-- The answer for an epoch that is not the stored one; nil if the caller may go on all the same.
local function judge_epoch(stored, known)
  local layout, jobs = string.match(stored or '', '^(%d+)(%-.+)$')
  local its_layout, its_jobs = string.match(known, '^(%d+)(%-.+)$')
  if not jobs or jobs ~= its_jobs or tonumber(layout) < tonumber(its_layout) then
    return redis.error_reply('WINDLASSEPOCH the stored epoch is missing or another one')
  end
  -- The same jobs. What the caller may still do with them, the newer layout has said.
  newer = layout
  if tonumber(its_layout) < tonumber(redis.call('GET', prefix .. 'finishes') or layout) then
    return redis.error_reply('WINDLASSLAYOUT ' .. newer .. ' is the stored layout')
  end
end

-- Begin a call. The last two arguments, the epoch and the test instant or '', are taken away. The
-- answer: nil, or an error if this is not the storage that was opened.
local function begin(keys, arguments)
  prefix, newer = keys[1], nil
  cache, pending = setmetatable({}, BY_NAME), setmetatable({}, BY_NAME)
  local instant, known = table.remove(arguments), table.remove(arguments)
  if instant == '' then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  else
    now = tonumber(instant)
  end
  local stored = redis.call('GET', prefix .. 'epoch')
  if stored ~= known then
    return judge_epoch(stored, known)
  end
end
