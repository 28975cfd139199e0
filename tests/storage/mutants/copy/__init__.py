"""Broken stores for the tests of dump and restore."""
