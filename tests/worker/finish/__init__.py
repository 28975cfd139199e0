"""Tests of what follows a run: outcomes, retries, follow-ups and events."""
