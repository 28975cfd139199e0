"""One claimed job becomes one outcome: executors, timeouts, cancellation, logs and progress.

Nothing here writes to the store but log lines and progress, and nothing knows a retry rule.
"""
