"""`LimitStore`: rates, concurrency, lanes and circuit breakers; never more, and as much as allowed.

Every test here fails on a planted broken store.
"""
