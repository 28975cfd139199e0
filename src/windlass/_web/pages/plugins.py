"""Plugins: what each brings, and what it was granted."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from starlette.responses import Response

from windlass._admin.plugins import PluginReport
from windlass._core.values.grants import Grants
from windlass._plugins.entry_points import installable
from windlass._web.request import PageRequest

__all__ = ["plugins"]

_OWN = "windlass"
_AROUND = {None: "no", "own": "around its own jobs", "all": "around every job"}


class PluginCard(msgspec.Struct, frozen=True):
    """One plugin as its card shows it."""

    report: PluginReport

    @property
    def words(self) -> str:
        """Return its description."""
        return " ".join(self.report.documentation.split())

    @property
    def own(self) -> bool:
        """Tell whether it is the plugin of Windlass itself, which adds its chores."""
        return self.report.name == _OWN

    @property
    def granted(self) -> list[tuple[str, str]]:
        return list(_granted(self.report.grants))


async def plugins(visit: PageRequest) -> Response:
    """Return the page."""
    found = await visit.admin.plugins.list()
    idle = sorted(installable().keys() - {report.name for report in found})
    cards = [PluginCard(report) for report in found]
    return await visit.render(
        "plugins.html",
        cards=[card for card in cards if not card.own],
        own=[card for card in cards if card.own],
        idle=idle,
    )


def _granted(grants: Grants) -> Iterator[tuple[str, str]]:
    said = {name: getattr(grants, name) for name in ("tasks", "schedules", "chores")}
    yield "May add", ", ".join(name for name, given in said.items() if given) or "nothing"
    yield "Queues", ", ".join(grants.queues) or "none"
    most = grants.max_running
    yield "Max running", "no limit" if most is None else f"{most:,} over all workers"
    yield "Middleware", _AROUND[grants.middleware]
    yield "Services", ", ".join(grants.services) or "none"
