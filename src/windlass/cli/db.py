"""``windlass db``: the storage itself. Made ready by a deploy, before workers need it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from windlass.storage.protocol import Storage

__all__ = ["db"]

_target = click.argument("target", metavar="[MODULE:APP]", required=False)
_url = click.option(
    "--url", metavar="URL", help="This storage, without an app. Default: WINDLASS_URL."
)
_json = click.option("--json", "as_json", is_flag=True, help="For machines, on standard output.")


@click.group()
def db() -> None:
    """Make a storage ready, and say what it is."""


@db.command()
@_target
@_url
@_json
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
@_target
@_url
@_json
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

    if target is not None and url is not None:
        raise click.UsageError("give an app or --url, not both")
    settings = load_app(target).settings if target is not None else load_settings(url, {})
    return await Opener(settings).open()


def _say(described: str, text: str, *, as_json: bool) -> None:
    import msgspec

    click.echo(msgspec.json.encode({"storage": described}).decode() if as_json else text)
