"""Due schedules become jobs, each slot once.

Rules and records of schedules are in `windlass._core.schedule`.
"""
