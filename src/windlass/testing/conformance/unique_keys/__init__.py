"""Unique keys: who holds one, what a conflict does, and when a key is free again.

Every test here fails on a planted broken store.
"""
