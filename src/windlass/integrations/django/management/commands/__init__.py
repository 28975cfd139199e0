"""``manage.py windlass_worker``, one module for each command.

The worker itself is in `windlass._cli.worker_process`.
"""
