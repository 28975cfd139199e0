"""``windlass schedules``: list, trigger, pause and change schedules while workers run.

What it may do is decided in `windlass._admin.schedules`.
"""
