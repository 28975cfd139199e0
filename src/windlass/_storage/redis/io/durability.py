"""Checks whether a server's durability is the requested one."""

from __future__ import annotations

import logging
import re
from typing import Literal, get_args

import msgspec

from windlass._storage.redis.io.connection import LoopConnection
from windlass.errors import ConfigError, StorageError, StorageUnavailable

__all__ = [
    "DurabilityWatch",
    "RedisDurability",
    "RedisServer",
    "check_durability",
    "check_server",
    "read_setting",
]

log = logging.getLogger("windlass")

RedisDurability = Literal["none", "local", "replicated"]

_OLDEST = (6, 2)
_ACCEPTS = 'durability="none" accepts the loss'
_DELAYED = re.compile(rb"aof_delayed_fsync:(\d+)")
_NUMBER = re.compile(r"\d+")


class RedisServer(msgspec.Struct, frozen=True):
    """The server that answered."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


async def check_server(line: LoopConnection, place: str) -> RedisServer:
    """Check whether this server can run the scripts at all."""
    try:
        found = await line.ask("HELLO", "2")
    except StorageUnavailable:
        raise
    except StorageError as error:
        if "unknown command" in str(error).lower():
            raise _too_old(place, "older than 6") from None
        raise
    told = dict(zip(found[::2], found[1::2], strict=True))
    version = told[b"version"].decode()
    numbers = tuple(int(part) for part in _NUMBER.findall(version)[:2])
    if numbers < _OLDEST:
        raise _too_old(place, version)
    return RedisServer("Valkey" if told[b"server"] == b"valkey" else "Redis", version)


def _too_old(place: str, version: str) -> StorageError:
    return StorageError(
        f"The Redis server at {place} is {version}. Windlass needs Redis 6.2 or Valkey: upgrade it."
    )


async def check_durability(
    line: LoopConnection, place: str, asked: RedisDurability | None
) -> RedisDurability:
    """Return the durability that counts; a server that would not keep it is refused."""
    if asked is not None and asked not in get_args(RedisDurability):
        raise ConfigError(
            f'durability for Redis is "local" (acknowledged jobs survive a crash of the server), '
            f'"replicated" (they also survive the machine) or "none", got {asked!r}.'
        )
    if asked == "none":
        return asked
    faults = await _faults(line)
    if faults is None:
        if asked is None:
            raise ConfigError(
                f"The Redis server at {place} does not show its configuration, so Windlass cannot "
                f'check its durability. Set durability="local" if it has an append-only file and '
                f'evicts nothing, "replicated" if replicas must confirm every write, "none" if '
                f"jobs may be lost. Or permit CONFIG GET."
            )
        return asked
    if faults:
        raise StorageError(
            f"The Redis server at {place} would lose acknowledged jobs: {'; '.join(faults)}. "
            f"Change that on the server (CONFIG SET, and in its configuration file), or use "
            f"another one; {_ACCEPTS}."
        )
    return asked or "local"


class DurabilityWatch:
    """Checks now and then whether the server still has the requested durability. An operator may
    have changed it, or a failover may have put another server in its place. Work continues, with a
    loud log line.
    """

    def __init__(self, line: LoopConnection, place: str) -> None:
        self._line, self._place = line, place
        self._said: list[str] = []
        self._delayed: int | None = None
        self._slow = False

    async def look(self) -> None:
        """Say what is wrong, once, and once when it is cured."""
        await self._look_at_syncs()
        faults = await _faults(self._line)
        if faults is None or faults == self._said:
            return
        self._said = faults
        if faults:
            log.error(
                "The Redis server at %s was changed and would lose acknowledged jobs: %s. Change "
                "that on the server.",
                self._place,
                "; ".join(faults),
            )
        else:
            log.warning("The Redis server at %s keeps acknowledged jobs again.", self._place)

    async def _look_at_syncs(self) -> None:
        """While a sync takes long, acknowledged writes are in the server's memory only."""
        delayed = await _delayed_syncs(self._line)
        if delayed is None:
            return
        before, self._delayed = self._delayed, delayed
        slower = before is not None and delayed > before
        if slower and not self._slow:
            log.warning(
                "The disk of the Redis server at %s is slow: writes to its append-only file had to "
                "wait for a sync %d times since the last check. If the server is killed meanwhile, "
                'acknowledged jobs are lost. Use a faster disk, appendfsync always, or durability="'
                'replicated".',
                self._place,
                delayed - (before or 0),
            )
        self._slow = slower


async def _faults(line: LoopConnection) -> list[str] | None:
    """Return the configuration that loses jobs, and the right values; None where it is hidden."""
    faults: list[str] = []
    appendonly = await read_setting(line, "appendonly")
    if appendonly is None:
        return None
    if appendonly != "yes":
        faults.append("it keeps no append-only file (set appendonly yes)")
    elif await read_setting(line, "appendfsync") == "no":
        faults.append("it never syncs that file to disk (set appendfsync everysec or always)")
    policy = await read_setting(line, "maxmemory-policy")
    if policy != "noeviction":
        faults.append(f"it evicts keys when memory is short, {policy} (set it to noeviction)")
    if await _append_failed(line):
        faults.append("its last write to the append-only file failed (check its disk)")
    return faults


async def read_setting(line: LoopConnection, name: str) -> str | None:
    """Return one line of its configuration; None where it is hidden."""
    try:
        found = await line.ask("CONFIG", "GET", name)
    except StorageUnavailable:
        raise
    except StorageError:  # no permission, or a service that has no such command
        return None
    return found[1].decode() if found else None


async def _append_failed(line: LoopConnection) -> bool:
    return b"aof_last_write_status:err" in await _persistence(line)


async def _delayed_syncs(line: LoopConnection) -> int | None:
    """Return how often it wrote late because a sync was under way, since it started; None: not
    known.
    """
    found = _DELAYED.search(await _persistence(line))
    return None if found is None else int(found[1])


async def _persistence(line: LoopConnection) -> bytes:
    try:
        return bytes(await line.ask("INFO", "persistence"))
    except StorageUnavailable:
        raise
    except StorageError:  # without permission nothing is known
        return b""
