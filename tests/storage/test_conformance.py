"""Every conformance test on every backend."""

from __future__ import annotations

from windlass.testing.conformance import ALL

for suite in ALL:
    name = f"Test{suite.__name__}"
    globals()[name] = type(name, (suite,), {})
