"""``windlass dashboard``: the command and its HTTP server.

The pages are in `windlass._web`.
"""
