"""Broken stores for the tests of schedules."""
