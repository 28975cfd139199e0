"""Which storage a command is about: an app's, or the one at a URL; and what it is told there."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from windlass._app.parts import parts_of

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._settings.settings import Settings

__all__ = [
    "Target",
    "app_at",
    "json_option",
    "open_target",
    "refuse_missing_file",
    "run_on_target",
    "target_and_name",
    "target_and_names",
    "target_argument",
    "target_of",
    "url_option",
]

T = TypeVar("T")

target_argument = click.argument("target", metavar="[MODULE:APP]", required=False)
url_option = click.option(
    "--url", metavar="URL", help="This storage, without an app. Default: WINDLASS_URL."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="For machines, on standard output."
)


class Target(NamedTuple):
    """An app or a URL; neither: what the environment says."""

    target: str | None
    url: str | None


def target_of(target: str | None, url: str | None) -> Target:
    """Refuses both at once."""
    if target is not None and url is not None:
        raise click.UsageError("give an app or --url, not both")
    return Target(target, url)


def target_and_name(words: tuple[str, ...], url: str | None, what: str) -> tuple[Target, str]:
    """``[MODULE:APP] NAME``, of which the last is always there."""
    match words:
        case (name,) if ":" not in name or url is not None or "WINDLASS_URL" in os.environ:
            return target_of(None, url), name
        case (app,):
            message = f"say which {what}, after the app: {app} {what.upper()}"
            raise click.UsageError(message)
        case (app, name):
            return target_of(app, url), name
        case ():
            message = f"say which {what}: [MODULE:APP] {what.upper()}"
            raise click.UsageError(message)
        case _:
            message = f"one {what} at a time, got {' '.join(words)}"
            raise click.UsageError(message)


def target_and_names(
    words: tuple[str, ...], url: str | None, what: str
) -> tuple[Target, list[str]]:
    """``[MODULE:APP] NAME...``, each once. None of these names has a colon, so the first word tells
    itself.
    """
    if len(words) < 2:
        where, name = target_and_name(words, url, what)
        return where, [name]
    app, *rest = dict.fromkeys(words)
    return (target_of(app, url), rest) if ":" in app else (target_of(None, url), [app, *rest])


def app_at(url: str | None, **settings: Any) -> Windlass:
    """An app of this program at ``url``, which was chosen on the command line: whatever
    ``WINDLASS_URL`` says needs no warning.
    """
    from windlass._app.app import Windlass

    class Chosen(Windlass):
        _warns = False

    return Chosen(url, **settings)


@asynccontextmanager
async def open_target(where: Target) -> AsyncIterator[Windlass]:
    """The app, open; a storage that only its own process can reach is refused."""
    from windlass._cli.app_loader import load_app
    from windlass._core.values.redaction import redacted_url

    app = app_at(where.url) if where.target is None else load_app(where.target)
    if where.target is None:  # an app may be asked before its first job, a URL may be misspelt
        refuse_missing_file(app.settings)
    parts_of(app).act_as(f"cli:{_user()}")
    async with app:
        if not (await parts_of(app).storage()).shared:
            message = (
                f"{redacted_url(app.settings.url)} belongs to one process, and this command is "
                f"another one: ask app.admin there, or name a storage that both can reach"
            )
            raise click.ClickException(message)
        yield app


def refuse_missing_file(settings: Settings) -> None:
    """Whoever asks a file that is not there meant another one: an empty one is not made for it."""
    from windlass._storage.open import StorageOpener

    missing = StorageOpener(settings).missing_file
    if missing is not None:
        message = (
            f"there is no file {missing}. Check the path: three slashes are relative to this "
            f"folder, four absolute. `windlass db migrate --url {settings.url}` makes a new one"
        )
        raise click.ClickException(message)


def _user() -> str:
    """Under whose name orders are recorded."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number that has no name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def run_on_target(where: Target, question: Callable[[Windlass], Awaitable[T]]) -> T:
    """Open the storage, ask, and close it again."""

    async def answered() -> T:
        async with open_target(where) as app:
            return await question(app)

    return asyncio.run(answered())
