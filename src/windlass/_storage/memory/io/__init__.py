"""The rows themselves and what is kept beside them, on the memory backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
