"""What operators ask and order, with its audit records, on the PostgreSQL backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
