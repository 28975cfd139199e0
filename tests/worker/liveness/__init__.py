"""Tests of heartbeats, dead workers, maintenance, shutdown and lost storage."""
