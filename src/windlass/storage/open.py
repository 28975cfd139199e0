"""URL → storage. Backends are imported here and nowhere else, and only when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import unquote, urlsplit

from windlass.errors import ConfigError, MissingDependency, UnknownScheme
from windlass.seams import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from windlass.storage.memory import MemoryDatabase
    from windlass.storage.protocol import Storage

__all__ = ["Opener", "check_url"]

SCHEMES = ("memory", "sqlite")


def check_url(url: str) -> str:
    """The scheme of a usable URL; anything else is refused before it is needed."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        message = (
            f"{url!r} is no storage URL. Use for example sqlite:///jobs.db (a file here), "
            f"sqlite:////var/lib/app/jobs.db (an absolute path) or memory://"
        )
        raise ConfigError(message)
    if scheme not in SCHEMES:
        raise UnknownScheme(scheme, SCHEMES)
    if scheme == "sqlite":
        _sqlite_path(url)
    return scheme


def _sqlite_path(url: str) -> str:
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        message = (
            f"{url!r} has more than a file name. Options are settings: Windlass(url, "
            f"durability=...); a ? or # in the name is written %3F or %23"
        )
        raise ConfigError(message)
    if parts.netloc or parts.path.strip("/") in ("", ":memory:"):
        message = (
            f"{url!r} names no file. sqlite:///jobs.db is relative (three slashes), "
            f"sqlite:////var/lib/app/jobs.db absolute (four); for tests use memory://"
        )
        raise ConfigError(message)
    return unquote(parts.path[1:])


class StorageSettings(Protocol):
    """The settings that say where jobs live, and how safely."""

    @property
    def url(self) -> str: ...
    @property
    def durability(self) -> Literal["full", "normal"]: ...
    @property
    def allow_network_filesystem(self) -> bool: ...


class Opener:
    """Opens storages for one app. All its memory storages show the same jobs."""

    def __init__(self, settings: StorageSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        """``clock`` is settable through ``windlass.testing`` only."""
        self._settings = settings
        self.clock = clock
        self._memory: MemoryDatabase | None = None
        self.scheme = check_url(settings.url)

    @property
    def shared(self) -> bool:
        """Whether other processes see the same jobs."""
        return self.scheme != "memory"

    async def open(self) -> Storage:
        """A storage for the running event loop."""
        if self.scheme == "memory":
            return self._open_memory()
        return await self._open_sqlite()

    def _open_memory(self) -> Storage:
        from windlass.storage.memory import MemoryDatabase, MemoryStorage

        if self._memory is None:
            self._memory = MemoryDatabase(clock=self.clock)
        return MemoryStorage(self._memory)

    async def _open_sqlite(self) -> Storage:
        try:
            from windlass.storage.sqlite import open_sqlite
        except ImportError as error:
            if error.name != "apsw":
                raise
            feature = "The SQLite backend"
            raise MissingDependency(feature, "apsw") from error
        return await open_sqlite(
            _sqlite_path(self._settings.url),
            clock=self.clock,
            durability=self._settings.durability,
            allow_network_filesystem=self._settings.allow_network_filesystem,
        )
