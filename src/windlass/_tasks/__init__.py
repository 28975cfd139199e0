"""What a developer writes about jobs: tasks, their options, keys, limits, context and control flow.

Nothing here stores, claims or runs a job.
"""
