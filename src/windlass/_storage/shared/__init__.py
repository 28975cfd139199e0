"""Code shared by several backends: batching, migrations, SQL files, locks, subscribers and
conversions.

Nothing here knows one of the backends.
"""
