"""Tests of jobs that operators read."""
