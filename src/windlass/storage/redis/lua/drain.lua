-- LimitStore.drain.
-- ARGV: limit, key.
-- Answer: {}; or 'limit', the name, and the names that are defined.
-- use: lanes

local spec, use = spec_of(ARGV[1]), { ARGV[1], ARGV[2] }
if not spec then
  return { 'limit', ARGV[1], unpack(redis.call('HKEYS', prefix .. 'limits')) }
end
if spec[2] then
  drain(spec, use)
  postpone({ [gate_of(use)] = use })
end
return {}
