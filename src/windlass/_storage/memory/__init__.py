"""The memory backend: jobs in this process, the readable reference, and what tests run on.

Every store is a view on one `MemoryDatabase`, in ``io``. Only `windlass._storage.open` and
`windlass.testing` import this package.
"""

from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.storage import MemoryStorage

__all__ = ["MemoryDatabase", "MemoryStorage"]
