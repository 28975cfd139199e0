-- CopyStore.dump_flows.
-- ARGV: the number they come after, how many. Answer: their ids, in order.
-- reads only

return redis.call('ZRANGEBYSCORE', prefix .. 'flow_numbers', '(' .. ARGV[1], '+inf', 'LIMIT', 0, ARGV[2])
