"""Progress notes: the latest per run, stored a few times a second."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from windlass.core.job import Claim, ClaimedJob, Progress
from windlass.storage.protocol import JobStore

__all__ = ["ProgressReporter"]

log = logging.getLogger("windlass")

_PAUSE = 0.25


class ProgressReporter:
    """Collects notes from handlers, on the loop or on threads, and stores the newest ones."""

    def __init__(self, jobs: JobStore) -> None:
        """Idle until somebody reports."""
        self._jobs = jobs
        self._notes: dict[Claim, Progress] = {}
        self._muted: set[Claim] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say where notes from threads go."""
        self._loop = loop

    def note(self, job: ClaimedJob, progress: Progress) -> None:
        """Remember it; safe from any thread."""
        # What cannot be written as UTF-8 would spoil the whole batch, notes of other jobs too.
        words = progress.note.encode("utf-8", "replace").decode("utf-8")
        if words != progress.note:
            progress = msgspec.structs.replace(progress, note=words)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon_threadsafe(self._keep, job.claim, progress)

    def forget(self, claim: Claim) -> None:
        """The run has ended: what it said last is history."""
        self._notes.pop(claim, None)
        if self._muted:
            self._muted.discard(claim)

    def mute(self, claim: Claim) -> None:
        """Store nothing more of this run, which goes on; safe from any thread."""
        self._muted.add(claim)
        self._notes.pop(claim, None)

    def _keep(self, claim: Claim, progress: Progress) -> None:
        if claim in self._muted:
            return
        self._notes[claim] = progress
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._store())

    async def _store(self) -> None:
        try:
            while self._notes:
                notes, self._notes = self._notes, {}
                try:
                    await self._jobs.report(list(notes.items()))
                except Exception as error:  # noqa: BLE001 -- a note is worth no job and no worker
                    log.debug("progress was not stored: %s", error)
                await asyncio.sleep(_PAUSE)
        finally:
            self._task = None

    async def close(self) -> None:
        """Stop storing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
