"""Every conformance test on every backend."""

from __future__ import annotations

import pytest

from windlass.testing.conformance import ALL, LOCAL

for suite in ALL:
    name = f"Test{suite.__name__}"
    globals()[name] = type(name, (suite,), {})

for suite in LOCAL:
    name = f"Test{suite.__name__}"
    on_this_machine = pytest.mark.parametrize("storage", ["memory", "sqlite"], indirect=True)
    globals()[name] = on_this_machine(type(name, (suite,), {}))
