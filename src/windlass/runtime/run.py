"""One execution of a job in this process."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import IntEnum

from windlass.context import Token
from windlass.core.job import ClaimedJob
from windlass.runtime.threads import Return

__all__ = ["Run", "Why"]


class Why(IntEnum):
    """Why a run was asked to end. The higher reason wins."""

    CANCEL = 1
    """A stored request."""
    INTERRUPT = 2
    """The worker stops."""
    LOST = 3
    """The worker was buried: the claim is somebody else's, or soon will be."""


class Run(Token):
    """One execution in this process. It is its own cancel token: one object less per job."""

    __slots__ = ("body", "detached", "entered", "job", "on_loop", "why")

    def __init__(self, job: ClaimedJob) -> None:
        """Not started yet."""
        self._event = None  # this and the next: what `Token` does; one is made per job
        self.wish: timedelta | None = None
        self.job: ClaimedJob = job
        self.why: Why | None = None
        self.body: asyncio.Task[None] | None = None
        self.entered: bool = True
        """False while it waits for a child process, before the handler is entered there."""
        self.on_loop: bool = False
        """A plain function gave back something to await, and that is what runs now."""
        self.detached: asyncio.Future[Return] | None = None
        """A thread that outlived its timeout: it keeps the slot until it ends."""
