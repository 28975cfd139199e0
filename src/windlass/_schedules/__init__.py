"""Schedules as code declares them and as operators edit them.

The loop that fires them is in `windlass._worker.scheduler`.
"""
