"""Tests of flows as users write them: drawn, started, run, read, and drawn wrong."""
