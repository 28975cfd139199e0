"""``windlass db``: the storage itself. Made ready by a deploy, before workers need it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from windlass.cli.commands import Commands
from windlass.cli.copying import copy
from windlass.cli.target import json_option, place, refuse_missing, target_argument, url_option

if TYPE_CHECKING:
    from windlass.storage.protocol import Storage

__all__ = ["db"]


@click.group(cls=Commands)
def db() -> None:
    """Make a storage ready, say what it is, move it elsewhere."""


db.add_command(copy)


@db.command()
@target_argument
@url_option
@json_option
def migrate(target: str | None, url: str | None, *, as_json: bool) -> int:
    """Create the tables, or bring them to this version.

    Opening a storage does the same by itself. Do it in a deploy where workers run as a user who
    may not create tables, and to see it succeed before anything depends on it. Safe to repeat,
    and from several places at once; a storage that is up to date is not touched.
    """
    described = asyncio.run(_describe(target, url))
    _say(described, f"{described}: ready for this version", as_json=as_json)
    return 0


@db.command()
@target_argument
@url_option
@json_option
def show(target: str | None, url: str | None, *, as_json: bool) -> int:
    """What and where the storage is, and what it says of itself: sizes, settings, connections.

    Whether that is well: `windlass doctor`.
    """
    from windlass.cli.tables import print_json, print_pairs

    described, facts = asyncio.run(_described(target, url, there=target is None))
    if as_json:
        print_json({"storage": described, "facts": facts})
    else:
        print_pairs(described, [(name.replace("_", " "), _fact(name, facts)) for name in facts])
    return 0


_SIZES = frozenset({"size", "wal", "free_disk", "maxmemory", "append_only_file"})


def _fact(name: str, facts: Mapping[str, float | str]) -> str:
    from windlass.admin.doctor_findings import in_bytes

    value = facts[name]
    if isinstance(value, str):
        return value
    return in_bytes(value) if name in _SIZES else f"{value:,g}"


async def _describe(target: str | None, url: str | None) -> str:
    described, _ = await _described(target, url)
    return described


async def _described(
    target: str | None, url: str | None, *, there: bool = False
) -> tuple[str, Mapping[str, float | str]]:
    storage = await _open(target, url, there=there)
    try:
        return storage.describe(), await storage.health()
    finally:
        await storage.close()


async def _open(target: str | None, url: str | None, *, there: bool) -> Storage:
    from windlass.cli.loading import load_app
    from windlass.config import load_settings
    from windlass.storage.open import Opener

    where = place(target, url)
    named = where.target
    settings = load_settings(where.url, {}) if named is None else load_app(named).settings
    if there:
        refuse_missing(settings)
    return await Opener(settings).open()


def _say(described: str, text: str, *, as_json: bool) -> None:
    import msgspec

    click.echo(msgspec.json.encode({"storage": described}).decode() if as_json else text)
