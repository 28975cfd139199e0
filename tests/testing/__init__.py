"""Tests of what users test with."""
