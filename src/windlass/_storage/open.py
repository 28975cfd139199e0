"""URL → storage. Backends are imported here and nowhere else, and only when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import unquote, urlsplit

from windlass._core.values.redaction import redacted_url
from windlass._storage.shared.memory_url import memory_bounds
from windlass._storage.timings import Timings
from windlass._system.greenlets import refuse_green_files
from windlass._system.seams import SYSTEM_CLOCK, Clock
from windlass.errors import ConfigError, MissingDependency, UnknownScheme

if TYPE_CHECKING:
    from windlass._storage.memory import MemoryDatabase
    from windlass._storage.protocol.storage import Storage
    from windlass._storage.protocol.transactions import UserInsertStore

__all__ = ["TRANSACTIONAL", "Durability", "StorageOpener", "check_url"]

Durability = Literal["full", "normal", "local", "replicated", "none"]
_FILES: Sequence[Durability] = ("full", "normal")
_REDIS: Sequence[Durability] = ("local", "replicated", "none")
_DURABILITY: Mapping[str, Sequence[Durability]] = {
    "memory": (),
    "sqlite": _FILES,
    "postgresql": _FILES,
    "postgres": _FILES,
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+sentinel": _REDIS,
    "redis+cluster": _REDIS,
    "rediss+cluster": _REDIS,
}
"""The schemes, and what each backend can be told to promise about acknowledged jobs."""
SCHEMES = tuple(_DURABILITY)
TRANSACTIONAL = frozenset({"postgresql", "postgres"})
"""Those whose jobs can be part of a transaction of the user's."""


def check_url(url: str) -> str:
    """Return the scheme of a usable URL; anything else is refused before it is needed."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        message = (
            f"{redacted_url(url)!r} is no storage URL. Use for example sqlite:///jobs.db (a file "
            f"here), sqlite:////var/lib/app/jobs.db (an absolute path), "
            f"postgresql://user@host/database, redis://host:6379/0 or memory://"
        )
        raise ConfigError(message)
    if scheme not in SCHEMES:
        raise UnknownScheme(scheme, SCHEMES)
    if scheme == "sqlite":
        _sqlite_path(url)
    elif scheme == "memory":
        memory_bounds(url)
    return scheme


def _sqlite_path(url: str) -> str:
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        message = (
            f"{redacted_url(url)!r} has more than a file name. Options are settings: Windlass(url, "
            f"durability=...); a ? or # in the name is written %3F or %23"
        )
        raise ConfigError(message)
    if parts.netloc or parts.path.strip("/") in ("", ":memory:"):
        message = (
            f"{redacted_url(url)!r} names no file. sqlite:///jobs.db is relative (three slashes), "
            f"sqlite:////var/lib/app/jobs.db absolute (four); for tests use memory://"
        )
        raise ConfigError(message)
    return unquote(parts.path[1:])


def _check_durability(scheme: str, durability: Durability | None) -> None:
    """Refuse a durability that the backend does not know when the app is made, not later."""
    known = _DURABILITY[scheme]
    if durability is None or durability in known:
        return
    choice = " or ".join(map(repr, known)) or "not possible: leave it out"
    raise ConfigError(f"durability for {scheme}:// is {choice}, got {durability!r}")


class StorageSettings(Protocol):
    """The settings that say where jobs live, and how safely."""

    @property
    def url(self) -> str: ...
    @property
    def durability(self) -> Durability | None: ...
    @property
    def replicas(self) -> int: ...
    @property
    def schema(self) -> str: ...
    @property
    def prefix(self) -> str: ...
    @property
    def migrate(self) -> Literal["auto", "manual"]: ...
    @property
    def allow_network_filesystem(self) -> bool: ...


class StorageOpener:
    """Opens storages for one app. All its memory storages show the same jobs."""

    def __init__(self, settings: StorageSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        """``clock`` is settable through ``windlass.testing`` only."""
        self._settings = settings
        self.clock = clock
        self._memory: MemoryDatabase | None = None
        self.timings: Timings = Timings()
        """For all storages it has opened, on any event loop."""
        self.scheme: str = check_url(settings.url)
        _check_durability(self.scheme, settings.durability)

    @property
    def _migrates(self) -> bool:
        return self._settings.migrate == "auto"

    @property
    def name(self) -> str:
        """The file, schema or prefix that holds the jobs."""
        match self.scheme:
            case "memory":
                return "memory"
            case "sqlite":
                return Path(_sqlite_path(self._settings.url)).name
            case "postgresql" | "postgres":
                return self._settings.schema
            case _:
                return self._settings.prefix

    @property
    def shared(self) -> bool:
        """Whether other processes see the same jobs."""
        return self.scheme != "memory"

    @property
    def missing_file(self) -> Path | None:
        """The file that opening would make, because there is none yet; None: it would make none."""
        if self.scheme != "sqlite":
            return None
        path = Path(_sqlite_path(self._settings.url)).absolute()
        try:
            path.stat()
        except FileNotFoundError:
            return path
        except OSError:
            pass  # existence cannot be checked: opening it says why
        return None

    def transactions(self) -> UserInsertStore | None:
        """Return the store for jobs on connections of the user's, without opening anything; None:
        not here.
        """
        if self.scheme not in TRANSACTIONAL:
            return None
        from windlass._storage.postgres.transactions.transactions import UserTransactions

        return UserTransactions(self._settings.schema, self.clock)

    async def open(self) -> Storage:
        """Open a storage for the running event loop, whose answers are timed."""
        match self.scheme:
            case "memory":
                return self._open_memory()
            case "sqlite":
                return await self._open_sqlite()
            case "postgresql" | "postgres":
                return await self._open_postgres()
            case _:
                return await self._open_redis()

    async def drop(self, *, for_reset: bool = False) -> None:
        """Delete everything that Windlass keeps there. Storages that are open stop working.

        ``for_reset``: refuse where this user could not create it again.
        """
        match self.scheme:
            case "memory":
                self._memory = None
            case "sqlite":
                from windlass._storage.sqlite.drop import drop_sqlite

                drop_sqlite(_sqlite_path(self._settings.url))
            case "postgresql" | "postgres":
                from windlass._storage.postgres.drop import drop_postgres

                await drop_postgres(self._settings.url, self._settings.schema, recreate=for_reset)
            case _:
                from windlass._storage.redis.drop import drop_redis

                await drop_redis(self._settings.url, self._settings.prefix)

    def _open_memory(self) -> Storage:
        from windlass._storage.memory import MemoryDatabase, MemoryStorage

        if self._memory is None:
            bounds = memory_bounds(self._settings.url)
            self._memory = MemoryDatabase(self.clock, self.timings, bounds)
        return MemoryStorage(self._memory)

    async def _open_sqlite(self) -> Storage:
        refuse_green_files()
        try:
            from windlass._storage.sqlite import open_sqlite
        except ImportError as error:
            if error.name != "apsw":
                raise
            feature = "The SQLite backend"
            raise MissingDependency(feature, "apsw") from error
        return await open_sqlite(
            _sqlite_path(self._settings.url),
            clock=self.clock,
            durability="normal" if self._settings.durability == "normal" else "full",
            allow_network_filesystem=self._settings.allow_network_filesystem,
            migrates=self._migrates,
            timings=self.timings,
        )

    async def _open_postgres(self) -> Storage:
        try:
            from windlass._storage.postgres import open_postgres
        except ImportError as error:
            if error.name != "asyncpg":
                raise
            feature = "The PostgreSQL backend"
            raise MissingDependency(feature, "windlass[postgres]") from error
        return await open_postgres(
            self._settings.url,
            clock=self.clock,
            schema=self._settings.schema,
            durability="normal" if self._settings.durability == "normal" else "full",
            migrates=self._migrates,
            timings=self.timings,
        )

    async def _open_redis(self) -> Storage:
        try:
            from windlass._storage.redis import open_redis
        except ImportError as error:
            if error.name not in {"redis", "hiredis"}:
                raise
            feature = "The Redis backend"
            raise MissingDependency(feature, "windlass[redis]") from error
        durability = self._settings.durability
        if durability == "full" or durability == "normal":  # noqa: PLR1714 -- mypy follows this one
            durability = None  # was refused when the app was made
        return await open_redis(
            self._settings.url,
            clock=self.clock,
            prefix=self._settings.prefix,
            durability=durability,
            replicas=self._settings.replicas,
            migrates=self._migrates,
            timings=self.timings,
        )
