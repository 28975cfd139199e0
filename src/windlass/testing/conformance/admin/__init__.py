"""`AdminStore`: lists, counts, error groups, ids and statistics.

Every test here fails on a planted broken store.
"""
