"""Tests of the checks that `windlass doctor` runs."""
