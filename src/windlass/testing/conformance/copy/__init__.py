"""Dump and restore: nothing is lost on the way from one storage to another.

Every test here fails on a planted broken store.
"""
