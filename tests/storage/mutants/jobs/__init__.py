"""Broken stores for the tests of `JobStore`."""
