"""Reads and actions of operators, with their audit records, on the memory backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
