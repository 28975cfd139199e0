"""Tests of the scheduler: slots, deploys, edge cases and scheduled runs."""
