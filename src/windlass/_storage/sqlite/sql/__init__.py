"""The statements that Python sends to SQLite, by name.

`windlass._storage.shared.sql_files` reads them. Values are parameters:
nothing is interpolated.
"""
