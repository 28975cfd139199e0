"""Insert, claim, finish and cancel jobs, on the PostgreSQL backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
