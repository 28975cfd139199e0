"""Redaction of pages and logs: people see everything except secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from windlass._core.job.job import Attempt, JobRecord
from windlass._core.values.hidden_keys import has_digest, has_masked_digest, mask_digests
from windlass._core.values.redaction import (
    redacted_history,
    redacted_job,
    redacted_text,
    secret_names,
    secret_values,
)
from windlass._storage.protocol.admin import AdminStore
from windlass._storage.protocol.journal import LogChunk
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass._storage.protocol.storage import Storage
from windlass._storage.shared.reader_thread import run_on_reader_thread
from windlass._system.seams import new_secret
from windlass.errors import InvalidArgument, StorageError

__all__ = [
    "KeyMasks",
    "find_by_masked_key",
    "redacted",
    "redacted_attempts",
    "redacted_chunks",
    "redacted_page",
    "values_of",
]

T = TypeVar("T")


_LARGE = 64 * 1024
"""Bytes that are looked through for secrets on the event loop, at most."""

_STEP = 200
"""Jobs of a look for a key as it is shown: no store can find that by itself."""


class KeyMasks:
    """The visible form of keys in one installation."""

    def __init__(self, storage: Callable[[], Awaitable[Storage]]) -> None:
        self._storage = storage
        self._secret = ""

    async def secret(self) -> str:
        """Return the secret of the installation; the first caller makes it. Empty if it cannot be
        stored: then digests are hidden.
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
        """Return a text with its keys masked."""
        return mask_digests(text, await self.secret()) if has_digest(text) else text

    async def jobs(self, jobs: Sequence[JobRecord]) -> list[JobRecord]:
        """Return jobs with their keys and limits as they are shown."""
        if not any(has_digest(text) for job in jobs for text in _keys_of(job)):
            return list(jobs)
        secret = await self.secret()
        return [_shaded_job(job, secret) for job in jobs]

    async def states(self, states: Sequence[LimitState]) -> Sequence[LimitState]:
        """Return the budgets of a limit, by key as it is shown."""
        if not any(has_digest(state.key) for state in states):
            return states
        secret = await self.secret()
        told = [msgspec.structs.replace(one, key=mask_digests(one.key, secret)) for one in states]
        return sorted(told, key=lambda one: one.key)

    async def budget(self, name: str, key: str) -> str:
        """Return the stored key of a budget that is shown as ``key``; InvalidArgument if there is
        none.
        """
        if not has_masked_digest(key):
            return key
        secret = await self.secret()
        for state in await (await self._storage()).limits.states(name):
            if mask_digests(state.key, secret) == key:
                return state.key
        message = (
            f"limit {name!r} has no key that is shown as {key!r}: "
            f"`windlass limits show {name}` lists the keys in use"
        )
        raise InvalidArgument(message)


async def find_by_masked_key(
    shades: KeyMasks, store: AdminStore, wanted: JobFilter, limit: int
) -> Page:
    """`AdminStore.find` by a key as people see it."""
    key = wanted.key
    if has_digest(key):
        return Page(())  # not seen by the operator: it would be a guess
    if key is None or not has_masked_digest(key):
        return await store.find(wanted, limit=limit)
    task, _, _ = key.partition("/")
    if task and wanted.task not in (None, task):
        return Page(())
    anything = msgspec.structs.replace(wanted, key=None, task=wanted.task or task or None)
    secret = await shades.secret()

    async def look(many: int) -> Page:
        page = await store.find(anything, limit=many)
        found = [
            job for job in page if job.key is not None and mask_digests(job.key, secret) == key
        ]
        return Page(found, page.next, page.reached)

    page = await look(max(limit, _STEP))
    return page if len(page) <= limit else await look(limit)


def _keys_of(job: JobRecord) -> Iterable[str | None]:
    yield job.key
    for use in job.limits:
        yield use.key


def _shaded_job(job: JobRecord, secret: str) -> JobRecord:
    return msgspec.structs.replace(
        job,
        key=None if job.key is None else mask_digests(job.key, secret),
        limits=tuple(
            msgspec.structs.replace(use, key=mask_digests(use.key, secret)) if use.key else use
            for use in job.limits
        ),
    )


async def redacted_page(page: Page) -> Page:
    """Return the same jobs without their secrets."""
    jobs = await _off_the_loop(
        sum(_weight(job) for job in page), lambda: [redacted_job(job) for job in page]
    )
    return Page(jobs, page.next, page.reached)


async def redacted(job: JobRecord) -> JobRecord:
    """Return one job without its secrets."""
    return await _off_the_loop(_weight(job), lambda: redacted_job(job))


async def redacted_attempts(job: JobRecord, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Return the ended claims of ``job`` without its secrets."""
    said = sum(len(one.error.traceback) for one in attempts if one.error is not None)
    weight = len(job.payload) + said
    return await _off_the_loop(weight, lambda: redacted_history(job, attempts))


async def _off_the_loop(weight: int, work: Callable[[], T]) -> T:
    return await run_on_reader_thread(work) if weight > _LARGE else work()


def _weight(job: JobRecord) -> int:
    error = 0 if job.error is None else len(job.error.message) + len(job.error.traceback)
    return len(job.payload) + len(job.result or b"") + error


def values_of(job: JobRecord | None) -> Sequence[str]:
    """Return the values that must not appear in the texts around a job."""
    return () if job is None else secret_values(job.payload, secret_names(job.tags))


async def redacted_chunks(chunks: Sequence[LogChunk], job: JobRecord | None) -> Sequence[LogChunk]:
    """Return the lines of a job's log without its secrets, and without what looks like one."""
    weight = sum(len(line.text) for chunk in chunks for line in chunk.lines)
    weight += 0 if job is None else len(job.payload)

    def work() -> Sequence[LogChunk]:
        values = values_of(job)
        return [_redacted_chunk(chunk, values) for chunk in chunks]

    return await _off_the_loop(weight, work)


def _redacted_chunk(chunk: LogChunk, values: Sequence[str]) -> LogChunk:
    lines = [
        msgspec.structs.replace(line, text=redacted_text(line.text, values)) for line in chunk.lines
    ]
    return msgspec.structs.replace(chunk, lines=lines)
