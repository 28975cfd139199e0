"""Every conformance test on every backend."""

from __future__ import annotations

import pytest

from windlass.testing.conformance import ALL, LOCAL, TELLING

for suite in ALL:
    name = f"Test{suite.__name__}"
    globals()[name] = type(name, (suite,), {})

for suite in LOCAL:
    name = f"Test{suite.__name__}"
    on_this_machine = pytest.mark.parametrize("storage", ["memory", "sqlite"], indirect=True)
    globals()[name] = on_this_machine(type(name, (suite,), {}))

for suite in TELLING:
    name = f"Test{suite.__name__}"
    where_hints_tell = pytest.mark.parametrize(
        "storage", ["memory", "postgres", "redis"], indirect=True
    )
    globals()[name] = where_hints_tell(type(name, (suite,), {}))
