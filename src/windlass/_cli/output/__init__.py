"""Output of commands: tables, JSON, and the live line at the bottom of a terminal.

Nothing here knows a store.
"""
