"""Tests of rollups."""
