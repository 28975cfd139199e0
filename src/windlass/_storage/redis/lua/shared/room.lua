-- In front of a script that runs when memory is full, by EVAL: such as ending claims, which frees memory.
-- The server refuses a script at its first write only, and only where that write may need memory: so the
-- first is one that needs none. Functions have a flag for it.
redis.call('DEL', prefix .. 'none')
