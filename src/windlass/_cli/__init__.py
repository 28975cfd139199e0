"""The ``windlass`` command.

Commands parse, call ``app.admin`` or a worker, and print. Rules about jobs do not belong here.
"""
