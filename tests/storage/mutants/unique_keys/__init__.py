"""Broken stores for the tests of unique keys."""
