"""Where jobs live: the protocol that every backend keeps, what backends share, and four backends.

No policy is decided here; rules that a store must apply come from `windlass._core`.
"""
