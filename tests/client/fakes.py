"""Real stores, with one operation made to count, wait or fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._storage.open import StorageOpener
from windlass._storage.protocol.jobs import JobStore
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import Seams


class Wrapped:
    """The job store of ``storage``; subclasses replace what they are about."""

    def __init__(self, storage: Storage) -> None:
        self.inner: JobStore = storage.jobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @classmethod
    def of(cls, app: Windlass) -> Self:
        (storage,) = [one.storage for one in parts_of(app).connections._open.values()]
        jobs = storage.jobs
        assert isinstance(jobs, cls)
        return jobs


class _Storage:
    def __init__(self, inner: Storage, jobs: Wrapped) -> None:
        self._inner = inner
        self.jobs = jobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Opener(StorageOpener):
    def __init__(self, app: Windlass, kind: type[Wrapped]) -> None:
        super().__init__(app.settings)
        self._kind = kind

    async def open(self) -> Storage:
        storage: Any = await super().open()
        wrapped: Any = _Storage(storage, self._kind(storage))
        opened: Storage = wrapped
        return opened


@contextmanager
def wrapping(app: Windlass, kind: type[Wrapped]) -> Iterator[None]:
    """Every storage the app opens in this block has a job store of this kind."""
    with parts_of(app).connections.replaced(_Opener(app, kind), Seams()):
        yield
