"""Progress notes: the latest per run, stored a few times a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from windlass._core.job.job import Claim, ClaimedJob, Progress
from windlass._storage.protocol.jobs import JobStore

__all__ = ["ProgressReporter", "report_last"]

log = logging.getLogger("windlass")

_PAUSE = 0.25
_PATIENCE = 5.0
"""Seconds that a thread waits for its last note."""


class ProgressReporter:
    """Collects notes from handlers, on the loop or on threads, and stores the newest ones."""

    def __init__(self, jobs: JobStore) -> None:
        """Make a reporter, idle until a handler reports."""
        self._jobs = jobs
        self._notes: dict[Claim, Progress] = {}
        self._sending: dict[Claim, Progress] = {}
        self._muted: set[Claim] = set()
        self.used: bool = False
        """Whether there ever was something that `take` may have to forget."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say where notes from threads go."""
        self._loop = loop

    def note(self, job: ClaimedJob, progress: Progress) -> None:
        """Remember it; safe from any thread."""
        # Text that is not valid UTF-8 would spoil the whole batch, notes of other jobs too.
        words = progress.note.encode("utf-8", "replace").decode("utf-8")
        if words != progress.note:
            progress = msgspec.structs.replace(progress, note=words)
        here = _loop_of_this_thread()
        if self._loop is None:
            self._loop = here or asyncio.get_running_loop()
        if here is self._loop:
            self._keep(job.claim, progress)  # at once: the run may end in this moment
        else:
            self._loop.call_soon_threadsafe(self._keep, job.claim, progress)

    def take(self, claim: Claim) -> Progress | None:
        """Forget a run that has ended; the answer is what it said last, if the store may not have
        it yet.
        """
        if self._muted:
            self._muted.discard(claim)
        if not self._notes and not self._sending:
            return None
        return self._notes.pop(claim, None) or self._sending.get(claim)

    async def flush(self, claim: Claim) -> None:
        """Store what this run has said, now."""
        note = self._notes.pop(claim, None) or self._sending.get(claim)
        if note is not None:
            await report_last(self._jobs, [(claim, note)])

    def flush_from_thread(self, claim: Claim) -> None:
        """Flush from a thread of a handler, which waits for it a moment."""
        if self._loop is None or _loop_of_this_thread() is not None:
            return
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self.flush(claim), self._loop).result(_PATIENCE)

    def mute(self, claim: Claim) -> None:
        """Store no more progress of this run, which continues; safe from any thread."""
        self.used = True
        self._muted.add(claim)
        self._notes.pop(claim, None)

    def _keep(self, claim: Claim, progress: Progress) -> None:
        if claim in self._muted:
            return
        self.used = True
        self._notes[claim] = progress
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._store())

    async def _store(self) -> None:
        try:
            while self._notes:
                self._sending, self._notes = self._notes, {}
                await report_last(self._jobs, list(self._sending.items()))
                self._sending = {}
                await asyncio.sleep(_PAUSE)
        finally:
            self._task, self._sending = None, {}

    async def close(self) -> None:
        """Stop storing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


async def report_last(jobs: JobStore, notes: Sequence[tuple[Claim, Progress]]) -> None:
    """Store notes, if that can be done: a note is worth no job and no worker."""
    try:
        await jobs.report(notes)
    except Exception as error:  # noqa: BLE001 -- the others continue after any error
        log.debug("progress was not stored: %s", error)


def _loop_of_this_thread() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
