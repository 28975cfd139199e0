"""Every conformance test fails on a broken store: a test that cannot fail proves nothing."""

from __future__ import annotations

import inspect
from functools import partial

import pytest

from tests.storage.mutants import TABLE, broken_storage
from tests.storage.newer_schema import upgraded
from windlass.errors import WindlassError
from windlass.testing import conformance
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance import storage as opening

TESTS = {
    test.__qualname__: (suite, test)
    for suite in (*conformance.ALL, *conformance.LOCAL, *conformance.TELLING)
    for name, test in vars(suite).items()
    if name.startswith("test_")
}


# Ways for a test to fail. A slip in a mutant itself, such as an AttributeError, is none of them.
FAILURES = (AssertionError, ValueError, TimeoutError, WindlassError, pytest.fail.Exception)


@pytest.mark.parametrize("name", sorted(TABLE))
async def test_the_broken_store_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A store that never wakes is given up sooner than one that might be slow.
    monkeypatch.setattr(opening, "PATIENCE", 0.05)
    suite, test = TESTS[name]
    clock = VirtualClock()
    storage = broken_storage(TABLE[name], clock)
    elsewhere = broken_storage(TABLE[name], clock)
    arguments = {
        "storage": storage,
        "elsewhere": elsewhere,
        "clock": clock,
        "upgrade": partial(upgraded, storage),
    }
    wanted = inspect.signature(test).parameters.keys() & arguments.keys()
    with pytest.raises(FAILURES) as found:
        await test(suite(), **{name: arguments[name] for name in wanted})
    assert "pytest-timeout" not in str(found.value), "it was stopped, not found"


def test_every_conformance_test_has_its_broken_store() -> None:
    assert TABLE.keys() == TESTS.keys()
