"""Names for the shell's TAB key, read from the storage or the app that the line speaks of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from windlass._app.parts import parts_of
from windlass._cli.options.target import run_on_target, target_of

if TYPE_CHECKING:
    from windlass._app.app import Windlass

__all__ = ["limits", "queues", "schedules", "tasks", "workers"]

_PATIENCE = 1.5
"""Seconds until TAB completion gives up and shows nothing."""
_MOST = 200

_Names = Callable[["Windlass"], Awaitable[Iterable[str]]]


def _completed(ctx: click.Context, incomplete: str, names: _Names) -> list[str]:
    async def question(app: Windlass) -> list[str]:
        async with asyncio.timeout(_PATIENCE):
            return sorted({name for name in await names(app) if name.startswith(incomplete)})

    # Behind an option that still lacks its value nothing is parsed: arguments are left over.
    words = (ctx.params.get("target") or "", *(ctx.params.get("words") or ()), *ctx.args)
    app = next((word for word in words if ":" in word), None)
    try:
        return run_on_target(target_of(app, ctx.params.get("url")), question)[:_MOST]
    except Exception:  # noqa: BLE001 -- a traceback in the middle of a command line does not help
        return []


def queues(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Queues with jobs or settings, and those of the app's tasks."""

    async def names(app: Windlass) -> Iterable[str]:
        stored = [one.queue for one in await app.admin.queues.counts(cap=1)]
        return [*stored, *(parts_of(app).queues() if len(app.tasks) else ())]

    return _completed(ctx, incomplete, names)


def tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Tasks of the app, and those of live workers."""

    async def names(app: Windlass) -> Iterable[str]:
        live = [name for one in await app.admin.workers.list() for name in one.start.tasks]
        return [*live, *app.tasks.names]

    return _completed(ctx, incomplete, names)


def workers(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Workers, also dead ones: their jobs are looked for."""

    async def names(app: Windlass) -> Iterable[str]:
        return [one.start.id for one in await app.admin.workers.list()]

    return _completed(ctx, incomplete, names)


def limits(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Limits, without breakers."""

    async def names(app: Windlass) -> Iterable[str]:
        return [one.spec.name for one in await app.admin.limits.list()]

    return _completed(ctx, incomplete, names)


def schedules(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Schedules."""

    async def names(app: Windlass) -> Iterable[str]:
        return [name for name, state in await app.admin.schedules.states() if state != "removed"]

    return _completed(ctx, incomplete, names)
