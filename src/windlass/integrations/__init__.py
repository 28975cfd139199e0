"""Windlass inside web frameworks, and beside Celery: one module or package each, imported by name.

Nothing here is needed without its framework, and no other package imports it.
"""
