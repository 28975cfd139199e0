"""Tests of what only the memory backend promises."""
