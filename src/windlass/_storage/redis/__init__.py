"""The Redis and Valkey backend: many machines, lowest latency.

Every atomic operation is one file in ``lua``; ``io.layout`` documents the keys. Only
`windlass._storage.open` imports this package.
"""

from windlass._storage.redis.storage import RedisStorage, open_redis

__all__ = ["RedisStorage", "open_redis"]
