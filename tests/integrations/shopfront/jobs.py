"""The app that settings name; tasks are elsewhere."""

from __future__ import annotations

from windlass.integrations.django import make_app

app = make_app()
