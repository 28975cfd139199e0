"""Listeners to events. A failing listener never fails a job."""
