"""Changes of the SQLite schema, as SQL files that are applied in the order of their numbers.

A file that was released is never edited.
"""
