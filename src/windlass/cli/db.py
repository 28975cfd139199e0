"""``windlass db``: the storage itself. Made ready by a deploy, before workers need it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from windlass.cli.copying import copy
from windlass.cli.target import json_option, place, target_argument, url_option

if TYPE_CHECKING:
    from windlass.storage.protocol import Storage

__all__ = ["db"]


@click.group()
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
    """Open the storage and say what and where it is, and that it answers."""
    described = asyncio.run(_describe(target, url))
    _say(described, described, as_json=as_json)
    return 0


async def _describe(target: str | None, url: str | None) -> str:
    storage = await _open(target, url)
    try:
        await storage.now()
        return storage.describe()
    finally:
        await storage.close()


async def _open(target: str | None, url: str | None) -> Storage:
    from windlass.cli.loading import load_app
    from windlass.config import load_settings
    from windlass.storage.open import Opener

    where = place(target, url)
    named = where.target
    settings = load_settings(where.url, {}) if named is None else load_app(named).settings
    return await Opener(settings).open()


def _say(described: str, text: str, *, as_json: bool) -> None:
    import msgspec

    click.echo(msgspec.json.encode({"storage": described}).decode() if as_json else text)
