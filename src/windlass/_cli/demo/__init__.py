"""``windlass demo``: a small shop on a temporary SQLite file, with or without a dashboard.

Ordinary tasks and the public API. Nothing in the product knows of it.
"""
