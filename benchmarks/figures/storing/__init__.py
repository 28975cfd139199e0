"""Figures about storing jobs: single calls, calls at once and bulk."""
