"""Broken stores for the tests of limits and breakers."""
