"""Processes that are killed on purpose, the stores they leave, and the accounts that must agree."""
