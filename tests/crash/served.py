"""What a worker is told to serve: ``windlass worker tests.crash.served:app``."""

from __future__ import annotations

from tests.crash.shop import from_environment

app = from_environment().app
