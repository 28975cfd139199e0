"""The PostgreSQL backend: many machines, and jobs in one transaction with your own rows.

A job passes ``jobs``, ``limits`` and ``workers``; SQL is in ``sql`` and ``functions``, never in
Python. Only `windlass._storage.open` imports this package.
"""

from windlass._storage.postgres.storage import PostgresStorage, open_postgres

__all__ = ["PostgresStorage", "open_postgres"]
