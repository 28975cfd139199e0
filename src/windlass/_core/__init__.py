"""Pure values and decisions: what a job is, what may happen to it, and what follows.

No clock, no randomness, no I/O, no threads; it imports nothing of Windlass but its errors.
"""
