"""The storage of a command: an app's, or the one at a URL."""

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
    "settings_of",
    "target_and_name",
    "target_and_names",
    "target_argument",
    "target_of",
    "url_option",
    "who",
]

T = TypeVar("T")

target_argument = click.argument("target", metavar="[MODULE:APP]", required=False)
url_option = click.option(
    "--url", metavar="URL", help="Use this storage, without an app. Default: WINDLASS_URL."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


class Target(NamedTuple):
    """An app or a URL. Without either, the environment decides."""

    target: str | None
    url: str | None


def target_of(target: str | None, url: str | None) -> Target:
    """Return the target. An app and a URL together are a usage error."""
    if target is not None and url is not None:
        raise click.UsageError("give an app or --url, not both")
    return Target(target, url)


def target_and_name(words: tuple[str, ...], url: str | None, what: str) -> tuple[Target, str]:
    """Read ``[MODULE:APP] NAME``."""
    match words:
        case (name,) if ":" not in name or url is not None or "WINDLASS_URL" in os.environ:
            return target_of(None, url), name
        case (app,):
            message = f"give the {what} after the app: {app} {what.upper()}"
            raise click.UsageError(message)
        case (app, name):
            return target_of(app, url), name
        case ():
            message = f"give the {what}: [MODULE:APP] {what.upper()}"
            raise click.UsageError(message)
        case _:
            message = f"one {what} at a time, got {' '.join(words)}"
            raise click.UsageError(message)


def target_and_names(
    words: tuple[str, ...], url: str | None, what: str
) -> tuple[Target, list[str]]:
    """Read ``[MODULE:APP] NAME...``. No name has a colon, so a first word with one is the app."""
    if len(words) < 2:
        where, name = target_and_name(words, url, what)
        return where, [name]
    app, *rest = dict.fromkeys(words)
    return (target_of(app, url), rest) if ":" in app else (target_of(None, url), [app, *rest])


def app_at(url: str | None, **settings: Any) -> Windlass:
    """Make an app without tasks at ``url``. It does not warn if ``WINDLASS_URL`` differs."""
    from windlass._app.app import Windlass

    class Chosen(Windlass):
        _warns = False

    return Chosen(url, **settings)


def settings_of(where: Target) -> Settings:
    """Return the settings of the app, or those for the URL."""
    from windlass._cli.app_loader import load_app
    from windlass._settings.load import load_settings

    if where.target is None:
        return load_settings(where.url, {})
    return load_app(where.target).settings


@asynccontextmanager
async def open_target(where: Target) -> AsyncIterator[Windlass]:
    """Open the app. Refuse a storage that only its own process can reach."""
    from windlass._cli.app_loader import load_app
    from windlass._core.values.redaction import redacted_url

    app = app_at(where.url) if where.target is None else load_app(where.target)
    if where.target is None:  # an app may be asked before its first job, a URL may be misspelt
        refuse_missing_file(app.settings)
    parts_of(app).act_as(who())
    async with app:
        if not (await parts_of(app).storage()).shared:
            message = (
                f"{redacted_url(app.settings.url)} belongs to one process, and this command is "
                f"another one: use app.admin in that process, or name a storage that both can reach"
            )
            raise click.ClickException(message)
        yield app


def refuse_missing_file(settings: Settings) -> None:
    """Refuse a file that does not exist: the path is probably misspelt."""
    from windlass._storage.open import StorageOpener

    missing = StorageOpener(settings).missing_file
    if missing is not None:
        message = (
            f"there is no file {missing}. Check the path: three slashes are relative to this "
            f"folder, four absolute. `windlass db migrate --url {settings.url}` creates it"
        )
        raise click.ClickException(message)


def who() -> str:
    """Return the name under which the audit log records actions."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number that has no name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"cli:{user}"


def run_on_target(where: Target, question: Callable[[Windlass], Awaitable[T]]) -> T:
    """Open the storage, await ``question`` and close the storage."""

    async def answered() -> T:
        async with open_target(where) as app:
            return await question(app)

    return asyncio.run(answered())
