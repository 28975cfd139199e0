"""Tests of what only the SQLite backend promises."""
