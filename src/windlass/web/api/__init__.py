"""The dashboard for machines: JSON under ``/api/v1``, with the same doors, roles and records."""
