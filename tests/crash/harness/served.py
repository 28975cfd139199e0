"""What a worker is told to serve: ``windlass worker tests.crash.harness.served:app``."""

from __future__ import annotations

from tests.crash.harness.shop import from_environment

app = from_environment().app
