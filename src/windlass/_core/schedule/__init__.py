"""Schedules: their rules, their records, and their description in words.

Nothing here reads a clock: callers pass the instant.
"""
