"""Windlass on one SQLite file."""
