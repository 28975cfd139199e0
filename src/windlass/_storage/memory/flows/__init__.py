"""Flows, their parts and the members of these, on the memory backend.

Only this backend imports it; the promises are in `windlass._storage.protocol.flows`.
"""
