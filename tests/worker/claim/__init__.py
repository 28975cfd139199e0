"""Tests of claiming: slots, limits, unknown tasks and jobs that run alone."""
