"""Tests of what only the PostgreSQL backend promises."""
