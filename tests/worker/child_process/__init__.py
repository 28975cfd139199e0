"""Tests of ``run_in="process"``."""
