"""Tasks as developers write them: options, unique keys, limits, context and hooks.

Nothing here stores, claims or runs a job.
"""
