"""The pure core: what a job is, what may happen to it, and what follows.

No I/O, no clock, no randomness, no logging. Time arrives as ``now``, chance as a float in [0, 1).
"""
