"""Fixtures for pytest, which loads this module by itself where Windlass is installed.

Nothing else in Windlass imports pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module

import pytest

from windlass._app.app import Windlass
from windlass.errors import ConfigError
from windlass.testing._clock import VirtualClock
from windlass.testing._isolation import isolated

__all__ = ["pytest_addoption", "windlass_app", "windlass_clock", "windlass_isolated"]

_SETTING = "windlass_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``windlass_app = "shop.jobs:app"`` under ``[tool.pytest.ini_options]``."""
    parser.addini(_SETTING, "the app of the fixture windlass_app, as module:name")


@pytest.fixture
def windlass_clock() -> VirtualClock:
    """Return the clock of this test's isolated apps. It moves only when the test moves it."""
    return VirtualClock()


@pytest.fixture
def windlass_isolated(windlass_clock: VirtualClock) -> Iterator[Callable[[Windlass], Windlass]]:
    """Put apps on a memory store until the end of the test: ``windlass_isolated(app)``."""
    with ExitStack() as stack:

        def isolate(app: Windlass) -> Windlass:
            stack.enter_context(isolated(app, clock=windlass_clock))
            return app

        yield isolate


@pytest.fixture
def windlass_app(
    request: pytest.FixtureRequest, windlass_isolated: Callable[[Windlass], Windlass]
) -> Windlass:
    """Isolate the app that the setting ``windlass_app`` names for this test, and return it."""
    return windlass_isolated(_named_app(str(request.config.getini(_SETTING))))


def _named_app(path: str) -> Windlass:
    module, colon, name = path.partition(":")
    if not colon:
        message = (
            f"the fixture windlass_app needs to know your app. Under [tool.pytest.ini_options] "
            f'write windlass_app = "module:name", got {path!r}; or isolate it yourself with '
            f"windlass_isolated(app)."
        )
        raise ConfigError(message)
    found = getattr(import_module(module), name, None)
    if not isinstance(found, Windlass):
        message = f"windlass_app = {path!r} names no Windlass app, but {found!r}"
        raise ConfigError(message)
    return found
