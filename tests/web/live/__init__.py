"""Tests of the stream of changes."""
