"""Broken stores for the tests of `FlowStore`."""
