"""The dashboard: an ASGI application with pages, an HTTP API and a stream of changes.

It reads and acts through ``app.admin`` only, and lets no one in by default.
"""
