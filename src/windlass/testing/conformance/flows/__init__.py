"""Flows: what is promised about jobs that wait for jobs."""
