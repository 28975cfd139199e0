"""What users choose with: settings, URLs, entry points and extras."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from tests.architecture.interface import internals
from tests.architecture.interface.program import pyproject
from tests.architecture.interface.shop import own_environment
from tests.architecture.source import PACKAGE
from windlass import Grants, Windlass
from windlass._app.parts import parts_of
from windlass.errors import ConfigError

UNKNOWN = "is no setting"
DURABILITIES = ("full", "normal", "local", "replicated", "none")
PLACES = {"sqlite": "/jobs.db", "unix": "/s", "redis+sentinel": "h/s", "rediss+sentinel": "h/s"}
POSTGRES_OPTIONS = (
    *("application_name", "channel_binding", "connect_timeout", "fallback_application_name"),
    *("gssdelegation", "gssencmode", "host", "keepalives", "keepalives_count", "keepalives_idle"),
    *("keepalives_interval", "load_balance_hosts", "max_protocol_version", "min_protocol_version"),
    *("pgbouncer", "sslcertmode", "sslcompression", "sslmode", "sslsni", "statement_cache_size"),
)
"""Of libpq, poolers and asyncpg; others than these are the driver's business."""


def settings() -> Iterator[str]:
    """Each is tried in the environment and in a file: with a wrong value, but a known name."""
    with own_environment(), tempfile.TemporaryDirectory() as folder:
        made = Windlass("memory://").settings
        for field in msgspec.structs.fields(type(made)):
            if _known({f"WINDLASS_{field.name.upper()}": "?"}):
                yield f"WINDLASS_{field.name.upper()}"
            file = Path(folder) / "settings.toml"
            file.write_text(f"[windlass]\n{field.name} = {{}}\n", encoding="utf-8")
            if _known({"WINDLASS_CONFIG": str(file)}):
                value = getattr(made, field.name)
                shown = "" if field.name == "url" else f" = {msgspec.to_builtins(value)}"
                yield f"toml {field.name}{shown}"
    yield from (f"toml plugins.NAME.{name}" for name in Grants.__struct_fields__)
    for file in PACKAGE.rglob("*.py"):
        yield from re.findall(r"[\"'](_?WINDLASS_[A-Z_]+[A-Z])[\"']", file.read_text("utf-8"))


def _known(environment: Mapping[str, str]) -> bool:
    with mock.patch.dict(os.environ, environment):
        try:
            Windlass("memory://")
        except ConfigError as error:
            return UNKNOWN not in str(error)
        return True


def entry_points() -> Iterator[str]:
    """Group and name; what they lead to may move."""
    project = pyproject()
    yield from (f"console script {name}" for name in project["scripts"])
    yield from (f"extra {name}" for name in project["optional-dependencies"])
    for group, points in project["entry-points"].items():
        yield from (f"group {group}: {name}" for name in points)
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text("utf-8")
        if "entry_points(group=" in text:
            yield from (f"reads group {name}" for name in re.findall(r'GROUP = "(.+)"', text))
    for file in PACKAGE.glob("**/management/commands/[a-z]*.py"):
        yield f"django command {file.stem}"


def urls() -> Iterator[str]:
    """Schemes with the durability each can have, and the options that URLs may carry."""
    with own_environment():
        for scheme in _schemes():
            url = f"{scheme}://{PLACES.get(scheme, 'h')}"
            yield f"{scheme}://"
            for durability in DURABILITIES:
                if _accepted(url, durability=durability):
                    yield f"{scheme}:// durability {durability}"
            if scheme.startswith(("redis", "unix")):
                yield from (f"{scheme}:// option {name}" for name in _redis_options(url))
    yield from (f"memory:// option {name}" for name in internals.MEMORY_OPTIONS)
    for name in POSTGRES_OPTIONS:
        passed = f"{name}=1" in internals.parse_url(f"postgresql://h/d?{name}=1").dsn
        yield f"postgresql:// option {name} {'for the driver' if passed else 'read here'}"


def _schemes() -> list[str]:
    """What the refusal of an unknown one names."""
    try:
        Windlass("nothing://")
    except ConfigError as error:
        return str(error).rpartition("Use one of: ")[2].rstrip(".").split(", ")
    raise AssertionError("nothing:// is a scheme")


def _accepted(url: str, **given: Any) -> bool:
    try:
        Windlass(url, **given)
    except ConfigError:
        return False
    return True


def _redis_options(url: str) -> list[str]:
    """What the refusal of an unknown option names; nothing is connected to."""
    try:
        asyncio.run(parts_of(Windlass(f"{url}?nothing=1")).storage())
    except ConfigError as error:
        return re.findall(r"\w+", str(error).partition("there are ")[2].partition(". ")[0])
    raise AssertionError(f"{url} takes any option")
