"""Servers that are restarted, connections that are cut, answers that never arrive."""
