"""``manage.py windlass_worker``, one module for each command.

What a worker does is in `windlass._cli.worker_process`.
"""
