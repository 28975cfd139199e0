"""The statements that Python sends to PostgreSQL, by name.

`windlass._storage.shared.sql_files` reads them. Values are parameters:
nothing is interpolated.
"""
