"""Tests of ``windlass schedules``."""
