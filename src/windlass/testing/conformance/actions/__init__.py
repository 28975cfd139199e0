"""Actions of operators on jobs, with their audit records.

Every test here fails on a planted broken store.
"""
