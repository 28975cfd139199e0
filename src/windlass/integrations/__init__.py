"""Windlass inside web frameworks: one module or package each, imported by its own name.

Nothing here is needed without its framework, and no other package imports it.
"""
