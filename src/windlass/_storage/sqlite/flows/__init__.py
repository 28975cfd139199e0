"""Jobs that wait for jobs, on the SQLite backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
