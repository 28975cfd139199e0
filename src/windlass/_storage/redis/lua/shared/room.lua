-- For what must be possible when the server has no memory left (maxmemory): opening, beating, leading,
-- ending claims. Were they refused, no script could free memory. The server refuses a script at its
-- first write only, and only where that write may need memory: so the first is one that needs none.
redis.call('DEL', prefix .. 'none')
