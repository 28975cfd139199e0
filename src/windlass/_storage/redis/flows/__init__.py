"""Flows in Redis."""
