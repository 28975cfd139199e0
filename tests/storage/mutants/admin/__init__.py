"""Broken stores for the tests of `AdminStore`."""
