"""The PostgreSQL backend: many machines, and jobs in one transaction with your own rows."""

from windlass.storage.postgres.storage import PostgresStorage, open_postgres

__all__ = ["PostgresStorage", "open_postgres"]
