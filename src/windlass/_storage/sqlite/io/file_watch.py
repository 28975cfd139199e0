"""Wake-ups between processes on one file: notices commits of other connections.

The truth is ``PRAGMA data_version``, which changes with every commit of another connection. Asking
it every few milliseconds costs about one per cent of a core, most of it for waking up at all. So
where the kernel can tell (inotify, on Linux) the watcher sleeps until the write-ahead file is
written to; elsewhere it asks every 8 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import logging
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Protocol

import apsw

from windlass._storage.shared.subscribers import Subscribers
from windlass._storage.sqlite.io.connection import connect_reader, disconnect, translate
from windlass._storage.sqlite.io.files import DatabaseFiles
from windlass._system.forks import FORK_GUARD
from windlass._system.seams import sleep, start_thread
from windlass.errors import StorageError, WindlassError

__all__ = ["ChangeWatcher", "InotifyEvents", "NoFileEvents"]

log = logging.getLogger("windlass")

# A commit writes to the file first and becomes visible a sync later: 0.4 ms on a good disk, tens of
# milliseconds on a bad one. So one read after a write is too early; these are the pauses before the
# next ones. On a good disk the fourth is the last.
_PAUSES_MS = (0.2, 0.2, 0.2, 0.3, 0.5, 0.8, 1.2, 2, 3, 5, 8, 12, 20, 30)

# After a change was told, wait a little: a stream of commits becomes one wake-up every so often.
_REST = 0.004

_POLL_MS = 8
# Behind the events: one may get lost, and a sync may take longer than all looks together.
_SLOW_POLL_MS = 500
# Between two tries to open a database that could not be looked at.
_RETRY_MS = 1000


class FileEvents(Protocol):
    """A sign that the file may have changed."""

    poll_ms: int

    def fileno(self) -> int | None: ...

    def drain(self) -> bool:
        """Forget the signs so far; whether there were any."""
        ...

    def close(self) -> None: ...


class NoFileEvents:
    """No signs: look often."""

    poll_ms = _POLL_MS

    def fileno(self) -> int | None:
        return None

    def drain(self) -> bool:
        return False

    def close(self) -> None:
        pass


class InotifyEvents:
    """The kernel's word that the write-ahead file was written to."""

    poll_ms = _SLOW_POLL_MS
    _IN_MODIFY = ctypes.c_uint32(2)

    def __init__(self, path: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        if libc.inotify_add_watch(self._fd, os.fsencode(path), self._IN_MODIFY) < 0:
            error = ctypes.get_errno()
            self.close()
            raise OSError(error, "inotify_add_watch")

    def fileno(self) -> int | None:
        return self._fd

    def drain(self) -> bool:
        try:
            return bool(os.read(self._fd, 4096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._fd)


def _events_for(wal: str) -> FileEvents:
    """Events where the system has them and has any left to give; polling otherwise."""
    if sys.platform == "linux":
        try:
            return InotifyEvents(wal)
        except OSError as error:
            log.debug("watching %s by polling: %s", wal, error)
    return NoFileEvents()


class _ThreadWaker:
    """Wakes a thread that waits for a file or for time to pass."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._out, self._in = os.pipe()
        for end in (self._out, self._in):
            os.set_blocking(end, False)

    def ring(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            if self._in >= 0:
                os.write(self._in, b"!")

    def wait(self, milliseconds: int | None, file: int | None = None) -> None:
        """Return when the bell rings, the file has something to read, or the time is over."""
        poller = select.poll()
        for fd in (self._out, file):
            if fd is not None:
                poller.register(fd, select.POLLIN)
        if any(fd == self._out for fd, _ in poller.poll(milliseconds)):
            os.read(self._out, 4096)

    def close(self) -> None:
        with self._lock:
            os.close(self._in)
            os.close(self._out)
            self._in = self._out = -1


class ChangeWatcher:
    """Calls subscribers after a commit of another connection, most often of another process.

    One daemon thread per process and database. A lost wake-up costs a delay, never a job:
    subscribers also poll, rarely. ``on_error`` is called once, on the watcher's thread, when the
    database cannot be read; the watcher continues and recovers by itself.
    """

    def __init__(
        self,
        files: DatabaseFiles,
        *,
        on_error: Callable[[WindlassError], None] | None = None,
        events: Callable[[str], FileEvents] = _events_for,
    ) -> None:
        self._files, self._on_error, self._make_events = files, on_error, events
        self._pid = os.getpid()
        self._subscribers = Subscribers(threads=True)
        self._paused = self._parked = self._stopping = self._failing = False
        self.looks: int = 0  # how often the database was asked; what idleness costs
        self._bell = _ThreadWaker()
        self._thread = start_thread("sqlite-watcher", self._run)

    def subscribe(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]
    ) -> Callable[[], None]:
        """Call ``callback`` on ``loop`` after a change; what is returned ends that."""
        subscriber = self._subscribers.add(callback, loop=loop)
        return functools.partial(self._subscribers.remove, subscriber)

    def pause(self) -> None:
        """Stop looking, for as long as the subscribers look for themselves. Costs nothing."""
        self._paused = True

    def resume(self) -> None:
        """Watch again; a change that happened meanwhile is reported at once."""
        self._paused = False
        if self._parked:
            self._bell.ring()

    def close(self, timeout: timedelta = timedelta(seconds=2)) -> None:
        """End the thread. Nothing is reported after it has ended."""
        if self._stopping or os.getpid() != self._pid:
            return
        self._stopping = True
        self._bell.ring()
        self._thread.join(timeout.total_seconds())

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._watch()
            except Exception as error:  # noqa: BLE001 -- reported; a watcher that ends is worse
                self._report(error)
                self._bell.wait(_RETRY_MS)  # then with a fresh connection
        self._bell.close()

    def _report(self, error: Exception) -> None:
        """Say it once per outage."""
        if self._failing or self._stopping:
            return
        self._failing = True
        if isinstance(error, apsw.Error):
            error = translate(error, self._files.path)
        elif not isinstance(error, StorageError):
            error = StorageError(f"{self._files.path} cannot be watched: {error}")
        log.warning("no wake-ups from other processes until this is over: %s", error)
        if self._on_error is not None:
            self._on_error(error)

    def _watch(self) -> None:
        connection = connect_reader(self._files.path)
        try:
            events = self._make_events(self._files.wal)
            try:
                self._follow(connection, events)
            finally:
                events.close()
        finally:
            disconnect(connection)

    def _follow(self, connection: apsw.Connection, events: FileEvents) -> None:
        cursor = connection.cursor()
        seen = self._look(cursor)
        self._failing = False
        while self._rest(events):
            pauses: Iterator[float] = iter(())  # without a sign, one look is enough
            while not (self._stopping or self._paused):
                fresh = events.drain()
                version = self._look(cursor)
                if version != seen:
                    seen = version
                    self._tell()
                    sleep(_REST)
                    if not fresh:
                        break
                # A sign that came with this look may belong to a commit that is not visible yet.
                if fresh:
                    pauses = iter(_PAUSES_MS)
                if (pause := next(pauses, None)) is None:
                    break
                self._pause(pause, events)

    def _look(self, cursor: apsw.Cursor) -> int:
        self.looks += 1
        with FORK_GUARD:
            return int(cursor.execute("PRAGMA data_version").get)

    def _pause(self, milliseconds: float, events: FileEvents) -> None:
        """Wait before the next look; a further sign ends a long pause."""
        file = events.fileno()
        if file is None or milliseconds < 1:
            sleep(milliseconds / 1000)
        else:
            self._bell.wait(int(milliseconds), file)

    def _rest(self, events: FileEvents) -> bool:
        """Sleep until it is time to look; False when it never will be again."""
        file = events.fileno()
        if file is None:
            sleep(events.poll_ms / 1000)  # cheaper than to wait for the bell as well
        elif not self._paused:
            self._bell.wait(events.poll_ms, file)
        while self._paused and not self._stopping:
            self._parked = True
            if self._paused:  # a resume before `parked` was set has not rung the bell
                self._bell.wait(None)
            self._parked = False
        return not self._stopping

    def _tell(self) -> None:
        self._subscribers.wake()
