"""The storage and the client that each event loop has opened."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from windlass._client.client import Client
from windlass._core.job.job import JobId
from windlass._storage.open import StorageOpener
from windlass._storage.protocol.storage import Storage
from windlass._system.forks import keep_open
from windlass._system.greenlets import running_loop
from windlass._system.seams import Seams
from windlass.errors import AppClosed

__all__ = ["Connections", "MakeClient"]

MakeClient = Callable[[Storage, Seams], Client]


class _OpenLoop(msgspec.Struct):
    """The objects of one event loop."""

    storage: Storage
    client: Client


class Connections:
    """Opens an app for each event loop that uses it, at first use and again after a fork."""

    def __init__(self, opener: StorageOpener, seams: Seams, make_client: MakeClient) -> None:
        """Open nothing yet."""
        self.opener: StorageOpener = opener
        self.seams: Seams = seams
        self._make_client = make_client
        self._open: dict[asyncio.AbstractEventLoop, _OpenLoop] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[_OpenLoop]] = {}
        self._pid = os.getpid()
        self._refusal: str | None = None

    async def client(self) -> Client:
        """Return the client of this event loop, which is opened if need be."""
        return self.client_here() or (await self._opened()).client

    def client_here(self) -> Client | None:
        """Return the client of the running event loop, if this process has opened it."""
        # None where no loop runs: `_opened` says what to do then.
        opened = self._open.get(asyncio._get_running_loop())  # type: ignore[arg-type]  # noqa: SLF001
        return None if opened is None or self._pid != os.getpid() else opened.client

    def client_of(self, loop: asyncio.AbstractEventLoop) -> Client | None:
        """Return the client that this process has opened on another event loop, if it has."""
        opened = self._open.get(loop)
        return None if opened is None or self._pid != os.getpid() else opened.client

    async def storage(self) -> Storage:
        """Return the storage, opened for this event loop."""
        return (await self._opened()).storage

    def new_job_ids(self, count: int) -> Sequence[JobId]:
        """Make ids for jobs."""
        return self.seams.new_job_ids(count)

    @property
    def clients(self) -> list[Client]:
        """Those that are open now."""
        return [opened.client for opened in list(self._open.values())]

    @property
    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """The event loops that have it open."""
        return list(self._open)

    def tell_open_storage(self, tell: Callable[[Storage], None]) -> bool:
        """Call ``tell`` with an open storage, on its event loop; False: none is open.

        From any thread, also in a forked child: what the parent opened is not used there.
        """
        if self._pid == os.getpid():
            for loop, opened in list(self._open.items()):
                # A loop that ends just now takes no more calls; the next one may.
                with suppress(RuntimeError):
                    if loop.is_running():
                        loop.call_soon_threadsafe(tell, opened.storage)
                        return True
        return False

    def refuse(self, why: str) -> None:
        """Open nothing from now on: AppClosed says ``why``."""
        self._refusal = why

    # --- closing ---

    async def close(self) -> None:
        """Finish what is under way on this event loop and close its storage."""
        opened = self._open.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.client.close()
            await opened.storage.close()

    async def settle(self) -> None:
        """Finish what is under way on this event loop, and stay open."""
        opened = self._open.get(asyncio.get_running_loop())
        if opened is not None:
            await opened.client.close()

    @contextmanager
    def replaced(
        self, opener: StorageOpener, seams: Seams, make_client: MakeClient | None = None
    ) -> Iterator[None]:
        """Open storages and clients with these while the block lasts: for tests and dry runs."""
        self._notice_fork()  # a storage that is made in a forked child belongs to it
        before = self.opener, self.seams, self._make_client, self._refusal
        inside = self._open, self._opening
        self.opener, self.seams, self._refusal = opener, seams, None
        self._make_client = make_client or self._make_client
        self._open, self._opening = {}, {}
        try:
            yield
        finally:
            self.opener, self.seams, self._make_client, self._refusal = before
            self._open, self._opening = inside

    # --- opening ---

    async def _opened(self) -> _OpenLoop:
        self._notice_fork()
        loop = running_loop()
        opened = self._open.get(loop)
        if opened is not None:
            return opened
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._open_for(loop))
            opening.add_done_callback(lambda _: self._opening.pop(loop, None))
        # Shielded: the first caller's cancellation must not fail the others.
        return await asyncio.shield(opening)

    async def _open_for(self, loop: asyncio.AbstractEventLoop) -> _OpenLoop:
        if self._refusal is not None:
            raise AppClosed(self._refusal)
        await self._close_dead_loops()
        storage = await self.opener.open()
        opened = self._open[loop] = _OpenLoop(storage, self._make_client(storage, self.seams))
        return opened

    async def _close_dead_loops(self) -> None:
        """Close the storages of event loops that have ended without closing the app."""
        for loop in [loop for loop in list(self._open) if loop.is_closed()]:
            await self._open.pop(loop).storage.close()

    def _notice_fork(self) -> None:
        """Check for a fork by the process id, too: not every server that forks calls Python's
        hooks.
        """
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        if not self.opener.shared:
            self.refuse(
                "memory:// belongs to one process, and this is a forked child: its jobs would "
                "never run. Use sqlite:///jobs.db for several processes."
            )
        keep_open(*self._open.values())
        self._open.clear()
        self._opening.clear()
