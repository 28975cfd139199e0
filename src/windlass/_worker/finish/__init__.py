"""Outcomes become transitions and batched, fenced writes.

The decision itself is pure and lives in `windlass._core.job.transition`.
"""
