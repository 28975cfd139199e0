"""``windlass jobs``: find, read, change and replay jobs.

What it may do is decided in `windlass._admin.jobs`.
"""
