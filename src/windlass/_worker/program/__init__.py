"""External programs as handlers: ``run_in=Program(…)``, one process per job or warm ones.

The processes are watched and pooled by `windlass._worker.child_process`.
"""
