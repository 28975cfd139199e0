"""The same app and clock as in the tests of the client."""

from tests.client.conftest import app, clock

__all__ = ["app", "clock"]
