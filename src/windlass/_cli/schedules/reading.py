"""Read one schedule for printing, also after a change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from windlass._app.parts import parts_of
from windlass._cli.options.target import Target, run_on_target
from windlass._cli.schedules.tables import ShownSchedule

if TYPE_CHECKING:
    from windlass._app.app import Windlass

__all__ = ["act_on", "read_schedule"]


def read_schedule(where: Target, name: str) -> ShownSchedule:
    """Read a schedule."""

    async def question(app: Windlass) -> ShownSchedule:
        return await _shown(app, name)

    return run_on_target(where, question)


def act_on(where: Target, name: str, act: Callable[[Windlass], Awaitable[object]]) -> ShownSchedule:
    """Change a schedule with ``act``, then read it."""

    async def acted(app: Windlass) -> ShownSchedule:
        await act(app)
        return await _shown(app, name)

    return run_on_target(where, acted)


async def _shown(app: Windlass, name: str) -> ShownSchedule:
    report = await app.admin.schedules.get(name)
    now = await (await parts_of(app).storage()).now()
    return ShownSchedule(report, now, await app.admin.schedules.paused())
