"""``windlass worker`` as processes: options, supervisor, signals, health checks and exit codes.

What a worker does with jobs is in `windlass._worker`.
"""
