"""Broken stores for the tests of workers."""
