"""Tests of job records, states, transitions and outcomes."""
