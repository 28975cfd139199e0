"""Where a scene's jobs live: on one of the durable backends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.crash.harness.sqlite_store import SqliteStore
from tests.crash.harness.store import Store

SQLITE, POSTGRES, REDIS = "sqlite", "postgres", "redis"
DURABLE = (SQLITE, POSTGRES, REDIS)


class Place(NamedTuple):
    """A backend, and the settings that lead there."""

    backend: str
    settings: Mapping[str, str]
    """As `Windlass` takes them."""

    @property
    def env(self) -> dict[str, str]:
        """As a process finds them."""
        return {f"WINDLASS_{name.upper()}": text for name, text in self.settings.items()}

    def store(self) -> Store:
        """What a stranger sees there."""
        url = self.settings["url"]
        if self.backend == SQLITE:
            return SqliteStore(Path(url.removeprefix("sqlite:///")))
        if self.backend == POSTGRES:
            from tests.crash.harness.postgres_store import PostgresStore  # noqa: PLC0415 -- see below

            return PostgresStore(url, self.settings["schema"])
        # Only those who come here pay for the driver.
        from tests.crash.harness.redis_store import RedisStore  # noqa: PLC0415

        return RedisStore(url, self.settings["prefix"])


def on_file(path: Path) -> Place:
    return Place(SQLITE, {"url": f"sqlite:///{path}"})


def on_schema(url: str, schema: str) -> Place:
    return Place(POSTGRES, {"url": url, "schema": schema})


def on_prefix(url: str, prefix: str) -> Place:
    return Place(REDIS, {"url": url, "prefix": prefix})


def from_environment(env: Mapping[str, str]) -> Place:
    """The place of this process."""
    url = env["WINDLASS_URL"]
    if url.startswith("sqlite"):
        return Place(SQLITE, {"url": url})
    if url.startswith("postgres"):
        return on_schema(url, env["WINDLASS_SCHEMA"])
    return on_prefix(url, env["WINDLASS_PREFIX"])
