"""Tests of ``run_in=Program(…)``."""
