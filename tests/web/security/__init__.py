"""Tests of access, bounds and hostile input."""
