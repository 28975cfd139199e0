"""Dump and restore everything that is stored, on the memory backend.

Only this backend imports it; the promises are in `windlass._storage.protocol`.
"""
