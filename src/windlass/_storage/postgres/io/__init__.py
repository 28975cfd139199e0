"""Connections, the schema, rows, errors and wake-ups, on the PostgreSQL backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
