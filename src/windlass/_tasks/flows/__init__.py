"""Flows as users draw them, until they are started.

Nothing here stores anything: `windlass._client` does.
"""
