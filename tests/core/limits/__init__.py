"""Tests of limits, breakers, backoff and cool-downs as values."""
