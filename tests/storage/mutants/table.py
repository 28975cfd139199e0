"""Which broken store fails which conformance test.

A mutant is a subclass of one part of the memory backend with one bug in it. `fails` notes on the
mutant which tests find the bug; a test may be noted once, so the table stays a table.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._system.seams import Clock

Test = Callable[..., Coroutine[Any, Any, None]]
Mutant = TypeVar("Mutant", bound=type)

TABLE: dict[str, type] = {}
"""The qualified name of a conformance test, and the mutant it fails on."""


def fails(*tests: Test) -> Callable[[Mutant], Mutant]:
    """This mutant fails these tests."""

    def note(mutant: Mutant) -> Mutant:
        for test in tests:
            name = test.__qualname__
            assert name not in TABLE, f"{name} already fails on {TABLE[name].__name__}"
            TABLE[name] = mutant
        return mutant

    return note


def broken_storage(mutant: type, clock: Clock) -> MemoryStorage:
    """A memory storage in which the part that the mutant is a kind of has become the mutant."""
    storage = MemoryStorage(MemoryDatabase(clock))
    found = [part for part in _parts(storage) if issubclass(mutant, type(part))]
    assert found, f"{mutant.__name__} is no kind of any part of the memory backend"
    for part in found:
        part.__class__ = mutant
    return storage


def _parts(storage: MemoryStorage) -> Iterator[object]:
    """The storage and everything of the backend it is made of, each once."""
    parts: list[object] = [storage]
    for part in parts:
        yield part
        for inner in vars(part).values():
            ours = type(inner).__module__.startswith("windlass._storage.memory")
            if ours and hasattr(inner, "__dict__") and not any(inner is known for known in parts):
                parts.append(inner)
