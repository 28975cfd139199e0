"""Listeners to events: logs, Prometheus, OpenTelemetry.

A failing listener never fails a job, and nothing here changes one.
"""
