"""Reads and actions of operators, with their audit records, on the SQLite backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
