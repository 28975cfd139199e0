"""Tests of one run: executors, cancellation, timeouts, logs, progress and middleware."""
