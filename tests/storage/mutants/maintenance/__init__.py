"""Broken stores for the tests of maintenance."""
