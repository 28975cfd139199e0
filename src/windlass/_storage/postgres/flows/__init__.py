"""Flows in PostgreSQL."""

from __future__ import annotations
