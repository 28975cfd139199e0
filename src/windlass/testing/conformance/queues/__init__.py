"""`QueueStore`: settings, cool-downs, bounds and retention of whole queues.

Every test here fails on a planted broken store.
"""
