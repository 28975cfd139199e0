"""Broken stores for the tests of queues."""
