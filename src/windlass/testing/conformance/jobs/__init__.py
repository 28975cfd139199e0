"""`JobStore`: insert, claim, finish, retry and cancel, and what each leaves behind.

Every test here fails on a planted broken store.
"""
