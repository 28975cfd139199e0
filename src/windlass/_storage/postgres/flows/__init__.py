"""Flows, their parts and the members of these, on PostgreSQL.

Only this backend imports it; the promises are in `windlass._storage.protocol.flows`.
"""
