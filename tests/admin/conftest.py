"""The storages of the conformance tests: what is explained is explained on every one of them."""

from __future__ import annotations

from tests.storage.conftest import (
    clock,
    made_file,
    open_file,
    open_memory,
    open_prefix,
    open_schema,
    storage,
)

__all__ = [
    "clock",
    "made_file",
    "open_file",
    "open_memory",
    "open_prefix",
    "open_schema",
    "storage",
]
