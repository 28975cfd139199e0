-- LimitStore.drain.
-- ARGV: limit, key, note.
-- Answer: {}; or 'limit', the name, and the names that are defined.
-- use: lanes audits

local spec, use = spec_of(ARGV[1]), { ARGV[1], ARGV[2] }
if not spec then
  return { 'limit', ARGV[1], unpack(redis.call('HKEYS', prefix .. 'limits')) }
end
if spec[2] and not audits.known(ARGV[3]) then
  drain(spec, use)
  postpone({ [gate_of(use)] = use })
  audits.keep(ARGV[3], 1)
end
return {}
