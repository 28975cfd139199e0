"""Jobs in this process's memory: the readable reference, and what tests run on.

Every store is a view on one `MemoryDatabase`. Read in the order of a job's way: `row`,
`database`, `gates`, `jobs`, `claims`, `endings`, `workers`, `upkeep`; for people `admin`, `orders`,
`journal`, `moving`.
"""

from windlass.storage.memory.database import MemoryDatabase
from windlass.storage.memory.storage import MemoryStorage

__all__ = ["MemoryDatabase", "MemoryStorage"]
