"""`WorkerStore` and `LeaderStore`: registration, heartbeats, duties, death and leadership.

Every test here fails on a planted broken store.
"""
