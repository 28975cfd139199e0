"""Jobs on Redis or Valkey: many machines, lowest latency.

One Lua file per atomic operation: see `scripts`; how the keys are laid out is said in `layout`.
Read in the order of a job's way: `layout`, `insert`, `claim`, `apply`; below them `database`,
`connection` and `refusals`; around them `durability`, `workers`, `maintenance`, `wakeups`; for
people `admin`, `finding`, `faults`, `orders`, `journal`, `moving`.
"""

from windlass.storage.redis.storage import RedisStorage, open_redis

__all__ = ["RedisStorage", "open_redis"]
