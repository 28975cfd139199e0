"""Dump and restore everything that is stored, on the SQLite backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
