"""Tests of ``windlass worker`` as processes."""
