"""The dashboard: an ASGI application with pages, an HTTP API and a stream of changes.

It reads and orders through ``app.admin`` only, and lets nobody in by default.
"""
