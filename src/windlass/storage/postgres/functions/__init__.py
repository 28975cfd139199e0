"""The functions of the PostgreSQL backend, made in the order of their names."""
