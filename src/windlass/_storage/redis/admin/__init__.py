"""Reads and actions of operators, with their audit records, on the Redis backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
