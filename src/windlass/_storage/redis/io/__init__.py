"""Connections, the key layout, scripts, records and wake-ups, on the Redis backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
