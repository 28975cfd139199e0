"""What every test gets: a clean environment and one Hypothesis profile."""

from __future__ import annotations

import os

import hypothesis
import pytest

# The shipped conformance tests are imported, not collected: without this their asserts would
# fail without saying what they compared.
pytest.register_assert_rewrite("windlass.testing.conformance")

# No deadline: on a busy machine a slow example is not a wrong one; pytest-timeout bounds the test.
hypothesis.settings.register_profile("windlass", deadline=None, print_blob=True)
hypothesis.settings.load_profile("windlass")

# WINDLASS_TEST_… turns the knobs of the tests themselves; the rest are a developer's own settings.
for _name in [name for name in os.environ if name.startswith("WINDLASS_")]:
    if not _name.startswith("WINDLASS_TEST_"):
        del os.environ[_name]
