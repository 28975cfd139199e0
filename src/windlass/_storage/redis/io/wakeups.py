"""Hints that something changed: at once within this storage, by the server from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

import msgspec

from windlass._storage.protocol.wakeups import Topic
from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.dialer import Dialer
from windlass._storage.redis.io.listener import BLOCK_SECONDS, Ask, Listener
from windlass._storage.redis.io.work_hints import RedisWorkHints
from windlass._storage.shared.subscribers import QueueNames, Subscriber, Topics

__all__ = ["RedisWakeups"]

_QUEUES = b"q"
"""The field of an entry that names its queues, as ``wake`` in shared/jobs.lua writes it."""
_TOPIC = b"t"
"""The field of a notice that names its topic, as ``notify`` there writes it."""
_MOST = 64
"""Entries in one look. The stream keeps at least as many, so fewer are all there were since."""
_GATHER = 0.002
"""Seconds in which further changes become one hint."""

Entries = Sequence[tuple[bytes, Sequence[bytes]]]

_decode = msgspec.msgpack.Decoder(list[str]).decode


class RedisWakeups:
    """A `Wakeups`. Scripts that change something add an entry to a stream: to ``wake`` for every
    change, to ``notices`` for changes of one topic. Each stream is read on a separate connection
    while it has subscribers: producers need none.
    """

    def __init__(self, database: RedisDatabase, dialer: Dialer) -> None:
        self._db, self._dialer = database, dialer
        self._changes = StreamReader(database, dialer, "wake", self._changed)
        self._notices = StreamReader(database, dialer, "notices", self._noticed)
        self._work: set[RedisWorkHints] = set()

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        subscriber = self._db.subscribers.add(callback, topic=topic)
        reader = self._changes if topic is Topic.ANY else self._notices
        reader.read_for(subscriber)

        def unsubscribe() -> None:
            reader.end_for(subscriber)
            self._db.subscribers.remove(subscriber)

        return unsubscribe

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> RedisWorkHints:
        hints = RedisWorkHints(self._db, self._dialer, callback, queues)
        self._work = {other for other in self._work if not other.ended} | {hints}
        return hints

    def _changed(self, entries: Entries) -> None:
        self._db.wake(_queues_in(entries))

    def _noticed(self, entries: Entries) -> None:
        self._db.subscribers.wake(None, _topics_in(entries))

    async def close(self) -> None:
        self._db.subscribers.clear()
        for hints in self._work:
            hints.close()
        listeners = [self._changes.listener, self._notices.listener]
        listeners += [hints.listener for hints in self._work]
        for listener in listeners:
            if listener is not None:
                await listener.close()


class StreamReader:
    """Reads one stream while it has subscribers."""

    def __init__(
        self,
        database: RedisDatabase,
        dialer: Dialer,
        stream: str,
        tell: Callable[[Entries], None],
    ) -> None:
        """``tell`` gets new entries."""
        self._db, self._dialer, self._tell = database, dialer, tell
        self._stream = database.prefix + stream
        self._wanted = asyncio.Event()
        self._subscribers: set[Subscriber] = set()
        self.listener: Listener | None = None

    def read_for(self, subscriber: Subscriber) -> None:
        """Read the stream from now on, until `end_for` has ended it for the last subscriber."""
        self._subscribers.add(subscriber)
        self._wanted.set()
        if self.listener is None:
            self.listener = Listener(self._dialer, self._talk)

    def end_for(self, subscriber: Subscriber) -> None:
        """Stop reading for one subscriber. Safe to repeat."""
        self._subscribers.discard(subscriber)

    async def _talk(self, ask: Ask) -> None:
        while True:
            await self._wanted.wait()
            found = await ask("XREVRANGE", self._stream, "+", "-", "COUNT", 1)
            last = bytes(found[0][0]) if found else b"0-0"
            self._db.subscribers.wake()  # for changes before the stream could be read: once
            while self._subscribers:
                last = await self._next(ask, last)
            self._wanted.clear()

    async def _next(self, ask: Ask, last: bytes) -> bytes:
        """Wait for changes. Return the id of the newest."""
        block = BLOCK_SECONDS * 1000
        read = ("XREAD", "COUNT", _MOST, "BLOCK", block, "STREAMS", self._stream, last)
        found = await ask(*read)
        if not found:
            return last
        entries: Entries = found[0][1]
        self._tell(entries)
        await asyncio.sleep(_GATHER)
        return bytes(entries[-1][0])


def _queues_in(entries: Entries) -> QueueNames:
    """Name the queues that these entries concern; None: they may concern any.

    An entry without names, such as one of an older Windlass, concerns any.
    """
    if len(entries) >= _MOST:
        return None  # some before them may be gone from the stream
    queues: set[str] = set()
    for _, fields in entries:
        told = _field(fields, _QUEUES)
        if told is None:
            return None
        try:
            queues.update(_decode(told))
        except msgspec.MsgspecError:
            return None
    return queues


def _topics_in(entries: Entries) -> Topics:
    """Name the topics of these notices; None: they may have any."""
    if len(entries) >= _MOST:
        return None
    topics: set[Topic] = set()
    for _, fields in entries:
        try:
            topics.add(Topic((_field(fields, _TOPIC) or b"").decode()))
        except ValueError:
            return None
    return topics


def _field(fields: Sequence[bytes], name: bytes) -> bytes | None:
    return dict(zip(fields[::2], fields[1::2], strict=False)).get(name)
