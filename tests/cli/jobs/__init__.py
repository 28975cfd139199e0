"""Tests of ``windlass jobs``."""
