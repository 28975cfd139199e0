"""Tests of what only the Redis backend promises."""
