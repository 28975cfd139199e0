"""One stream per open page: names the parts of it that have changed.

The parts themselves are not sent; a page fetches those it shows, like any request. One read every
two seconds serves all streams together. Without listeners nothing is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from windlass.errors import StorageError

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = [
    "ChangeStream",
    "LiveChanges",
    "MayContinue",
    "ReadLiveItem",
    "ReadLiveState",
    "is_server_stopping",
    "parse_parts",
]

log = logging.getLogger("windlass")

ReadLiveState = Callable[["Admin"], Awaitable[object]]
"""Something that is another value whenever the part would look different."""
ReadLiveItem = Callable[["Admin", str], Awaitable[object]]
"""The same for parts that show one thing of many: ``job-`` and its id."""

MayContinue = Callable[[], Awaitable[bool]]
"""Checks whether the reader of a stream may still read it."""

POLL_SECONDS = 2.0
MAX_STREAMS = 100
MAX_STREAMS_PER_PERSON = 10
"""Streams of one person: a page in the background has none."""
MAX_ANONYMOUS_STREAMS = 50
"""Streams of those at one address whom the host lets in without a name."""
KEEP_ALIVE = 15.0
"""So that a proxy does not take silence for death."""
RETRY_AFTER_SECONDS = 30
"""Seconds after which a client without a place asks again."""
MAX_STREAM_SECONDS = 600.0
"""Then the browser asks again, and whether it still may is looked at anew."""
_MOST_THINGS = 2
"""Parts of single items that one stream may name: each of them costs a separate read."""
_WITHIN = 10.0
_WATCHED = 1.0
"""Seconds between two looks whether the server stops."""
_WHICH = re.compile(r"[0-9a-f]{32}")
"""Part of an event's name in the browser: an id, never a text that a user may choose."""


def is_server_stopping() -> bool:
    """Return whether uvicorn is about to leave.

    It tells no application so, and waits for every answer to end: a process with a page open
    somewhere would outlive its SIGTERM by minutes, and be killed before it could leave in order.
    But it is known who hears of that signal, and what became of it.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


async def _always() -> bool:
    return True


class ChangeStream:
    """One listener."""

    def __init__(self, parts: frozenset[str], who: str) -> None:
        """``parts``: what its page shows; ``who``: reads it."""
        self.who = who
        self.parts = parts
        self.told: asyncio.Event = asyncio.Event()
        self._changed: set[str] = set()
        self._word = ""

    def changed(self, parts: Iterable[str]) -> None:
        """Record a changed part. Until it is fetched it is reported once."""
        self._changed |= self.parts.intersection(parts)
        if self._changed:
            self.told.set()

    def say(self, word: str) -> None:
        """``down`` or ``up``; the last one counts."""
        self._word = word
        self.told.set()

    def take(self) -> str:
        """Return the events to send now."""
        lines = ""
        if self._word:
            lines += f"event: {self._word}\ndata: storage\n\n"
        if self._changed:
            lines += f"event: changed\ndata: {' '.join(sorted(self._changed))}\n\n"
        self._changed, self._word = set(), ""
        self.told.clear()
        return lines


class LiveChanges:
    """Looks for all of them."""

    def __init__(
        self,
        admin: Admin,
        looks: Mapping[str, ReadLiveState],
        looks_at: Mapping[str, ReadLiveItem] = MappingProxyType({}),
        *,
        every: float = POLL_SECONDS,
    ) -> None:
        """Make it. ``looks``: a part's name and what to compare; ``looks_at``: the name before the
        dash.
        """
        self._admin = admin
        self._looks = looks
        self._looks_at = looks_at
        self._every = every
        self._streams: set[ChangeStream] = set()
        self._seen: dict[str, object] = {}
        self._down = False
        self._looking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether no stream is left to give."""
        return len(self._streams) >= MAX_STREAMS

    def full_for(self, who: str, each: int = MAX_STREAMS_PER_PERSON) -> bool:
        """Return whether none is left for this person, who may have ``each``."""
        return sum(stream.who == who for stream in self._streams) >= each

    async def listen(
        self,
        parts: Iterable[str],
        *,
        who: str = "",
        each: int = MAX_STREAMS_PER_PERSON,
        still: MayContinue = _always,
        look_again: float = KEEP_ALIVE,
    ) -> AsyncGenerator[str, None]:
        """Yield the events of a stream, for ten minutes at most, and only while ``still`` allows
        its reader: that is checked every ``look_again`` seconds. Yields nothing if there is no room
        for a stream of ``who``.
        """
        if self.full or (who and self.full_for(who, each)):
            # Many were let in at the same moment: the browser of this one asks again.
            yield f"retry: {RETRY_AFTER_SECONDS * 1000}\n\n"
            return
        stream = ChangeStream(self._known(parts), who)
        self._streams.add(stream)
        self._start()
        loop = asyncio.get_running_loop()
        begun = heard = asked = loop.time()
        try:
            yield "retry: 2000\nevent: hello\ndata: windlass\n\n"
            # The page is older than its stream: changes in between were not seen.
            stream.changed(stream.parts)
            yield stream.take()
            if self._down:
                stream.say("down")
            while (now := loop.time()) < begun + MAX_STREAM_SECONDS and not self._closed:
                if now >= asked + look_again:
                    asked = now
                    try:
                        allowed = await still()
                    except Exception:
                        # The browser asks again, and is then told what is wrong.
                        log.exception("the dashboard could not check the user of a live stream")
                        return
                    if not allowed:
                        yield "event: out\ndata: session\n\n"
                        return
                if stream.told.is_set() or now >= heard + KEEP_ALIVE:
                    heard = now
                    yield stream.take() or ": still here\n\n"
                next_turn = min(begun + MAX_STREAM_SECONDS, heard + KEEP_ALIVE, asked + look_again)
                await _until(stream.told, next_turn)
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._rest()

    def close(self) -> None:
        """End every stream: the server stops."""
        self._closed = True
        for stream in list(self._streams):
            stream.told.set()

    def _known(self, parts: Iterable[str]) -> frozenset[str]:
        found = {part for part in parts if self._look(part) is not None}
        things = sorted(found - self._looks.keys())
        return frozenset(found.difference(things[_MOST_THINGS:]))

    def _look(self, part: str) -> ReadLiveState | None:
        """Return the read for a part such as ``job-0192…``; None: unknown part."""
        if part in self._looks:
            return self._looks[part]
        name, _, which = part.partition("-")
        look_at = self._looks_at.get(name)
        if look_at is None or _WHICH.fullmatch(which) is None:
            return None
        return lambda admin: look_at(admin, which)

    async def _found(self, part: str) -> object:
        look = self._look(part)
        return None if look is None else await look(self._admin)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._looking is None or self._looking.done():
            self._seen.clear()
            self._looking = loop.create_task(self._look_on())
        if self._watching is None or self._watching.done():
            self._watching = loop.create_task(self._end_with_the_server())

    def _rest(self) -> None:
        """Stop reading: the last listener has gone."""
        for task in (self._looking, self._watching):
            if task is not None:
                task.cancel()
        self._looking = self._watching = None

    async def _end_with_the_server(self) -> None:
        while not is_server_stopping():  # noqa: ASYNC110 -- uvicorn has no event for it
            await asyncio.sleep(_WATCHED)
        self.close()

    async def _look_on(self) -> None:
        while True:
            await self.step()
            await asyncio.sleep(self._every)

    async def step(self) -> None:
        """Read all parts that pages show, and notify the streams of those that changed."""
        wanted = set[str]().union(*(stream.parts for stream in self._streams))
        changed: set[str] = set()
        self._seen = {part: seen for part, seen in self._seen.items() if part in wanted}
        try:
            async with asyncio.timeout(_WITHIN):
                for part in sorted(wanted):
                    found = await self._found(part)
                    if part in self._seen and self._seen[part] != found:
                        changed.add(part)
                    self._seen[part] = found
        except (StorageError, TimeoutError, OSError) as error:
            self._tell_down(error)
            return
        except Exception:
            # One part that cannot be looked at must not silence the others for good.
            log.exception("the dashboard could not check for changes")
            return
        if self._down:
            self._down = False
            self._say("up")
        for stream in list(self._streams):
            stream.changed(changed)

    def _tell_down(self, error: Exception) -> None:
        if not self._down:
            log.warning("the dashboard cannot reach the storage: %s", error)
            self._down = True
            self._say("down")

    def _say(self, word: str) -> None:
        for stream in list(self._streams):
            stream.say(word)


async def _until(told: asyncio.Event, at: float) -> None:
    """Wait for it, no longer than to this time of the loop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(at):
            await told.wait()


def parse_parts(text: str) -> list[str]:
    """``jobs,queues`` of the address of a stream; a few at most."""
    return [part for part in text.split(",")[:20] if part]
