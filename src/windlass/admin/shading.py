"""Keys as people see them: no digest of their arguments is shown, or can be asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from windlass.core.job import Job
from windlass.core.shade import has_digest, has_shade, shaded
from windlass.errors import InvalidArgument, StorageError
from windlass.seams import new_secret
from windlass.storage.looks import JobFilter, LimitState, Page
from windlass.storage.protocol import AdminStore, Storage

__all__ = ["Shades", "find_shaded"]

_STEP = 200
"""Jobs of a look for a key as it is shown: no store can find that by itself."""


class Shades:
    """What is shown of keys in one installation."""

    def __init__(self, storage: Callable[[], Awaitable[Storage]]) -> None:
        self._storage = storage
        self._secret = ""

    async def secret(self) -> str:
        """The secret of the installation, made by whoever needs it first. Empty where it cannot be
        stored: then nothing is shown of a digest.
        """
        if not self._secret:
            store = (await self._storage()).admin
            self._secret = await store.secret()
            if not self._secret:
                try:
                    self._secret = await store.secret(new_secret())
                except StorageError:
                    return ""  # a standby, or a full disk: what was asked for can be read
        return self._secret

    async def text(self, text: str) -> str:
        """A text in which keys may stand."""
        return shaded(text, await self.secret()) if has_digest(text) else text

    async def jobs(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs with their keys and limits as they are shown."""
        if not any(has_digest(text) for job in jobs for text in _keys_of(job)):
            return list(jobs)
        secret = await self.secret()
        return [_shaded_job(job, secret) for job in jobs]

    async def states(self, states: Sequence[LimitState]) -> Sequence[LimitState]:
        """The budgets of a limit, by key as it is shown."""
        if not any(has_digest(state.key) for state in states):
            return states
        secret = await self.secret()
        told = [msgspec.structs.replace(one, key=shaded(one.key, secret)) for one in states]
        return sorted(told, key=lambda one: one.key)

    async def budget(self, name: str, key: str) -> str:
        """The stored key of a budget that is shown as ``key``; InvalidArgument if there is none."""
        if not has_shade(key):
            return key
        secret = await self.secret()
        for state in await (await self._storage()).limits.states(name):
            if shaded(state.key, secret) == key:
                return state.key
        message = (
            f"limit {name!r} has no budget that is shown as {key!r}: "
            f"`windlass limits show {name}` lists those that are in use"
        )
        raise InvalidArgument(message)


async def find_shaded(shades: Shades, store: AdminStore, wanted: JobFilter, limit: int) -> Page:
    """`AdminStore.find` by a key as people see it."""
    key = wanted.key
    if has_digest(key):
        return Page(())  # nobody has seen it: it would be a guess
    if key is None or not has_shade(key):
        return await store.find(wanted, limit=limit)
    task, _, _ = key.partition("/")
    if task and wanted.task not in (None, task):
        return Page(())
    anything = msgspec.structs.replace(wanted, key=None, task=wanted.task or task or None)
    secret = await shades.secret()

    async def look(many: int) -> Page:
        page = await store.find(anything, limit=many)
        found = [job for job in page if job.key is not None and shaded(job.key, secret) == key]
        return Page(found, page.next, page.reached)

    page = await look(max(limit, _STEP))
    return page if len(page) <= limit else await look(limit)


def _keys_of(job: Job) -> Iterable[str | None]:
    yield job.key
    for use in job.limits:
        yield use.key


def _shaded_job(job: Job, secret: str) -> Job:
    return msgspec.structs.replace(
        job,
        key=None if job.key is None else shaded(job.key, secret),
        limits=tuple(
            msgspec.structs.replace(use, key=shaded(use.key, secret)) if use.key else use
            for use in job.limits
        ),
    )
