"""The file, its connections, the one writer, rows and wake-ups, on the SQLite backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
