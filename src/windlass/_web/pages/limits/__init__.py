"""Limits and circuit breakers: their state and how operators change them.

Reading and acting go through ``app.admin``.
"""
