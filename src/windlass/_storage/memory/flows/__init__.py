"""Flows in memory: the readable reference of the other backends."""

from __future__ import annotations
