"""Schema changes of the PostgreSQL backend, in the order of their numbers."""
