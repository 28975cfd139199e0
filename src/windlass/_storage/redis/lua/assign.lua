-- The duty of live workers from now on.
-- use: workers audits
-- ARGV: duty, note, workers
-- Returns those whose duty it is now.
local duty, having, changed = ARGV[1], {}, 0
for i = 3, #ARGV do
  local row = prefix .. 'worker:' .. ARGV[i]
  if is_live(ARGV[i]) then
    local before = redis.call('HGET', row, 'duty') or 'work'
    if before ~= duty and before ~= 'stop' then -- a worker with the duty to stop may be stopping
      redis.call('HSET', row, 'duty', duty)
      before, changed = duty, changed + 1
    end
    if before == duty then
      having[#having + 1] = ARGV[i]
    end
  end
end
audits.keep(ARGV[2], changed)
return having
