"""Hosts and the storage over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass._core.stats.gauges import GaugeSeries
from windlass._web.api.endpoint import Endpoint, Part
from windlass._web.api.filters import Instant
from windlass._web.api.truncation import Names, page_by_name
from windlass._web.request import PageRequest

__all__ = ["SERIES", "Step", "span_of", "step_of"]

_HOUR = timedelta(hours=1)
Step = Annotated[int, Meta(ge=60, le=86_400, description="Seconds.")]


class HostQuery(Names, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host, or all; a span of time, without any the last hour."""

    since: Instant | None = None
    until: Instant | None = None
    step: Step | None = None
    host: str | None = None


class StorageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A span of time; without any, the last hour."""

    since: Instant | None = None
    until: Instant | None = None
    step: Step | None = None


async def span_of(
    visit: PageRequest, since: datetime | None, until: datetime | None
) -> tuple[datetime, datetime]:
    """Return the span that is asked for; without a start, one hour."""
    end = until or await visit.admin.storage.now()
    if since is not None:
        return since, end
    try:
        return end - _HOUR, end
    except OverflowError:
        return end, end


def step_of(seconds: int | None) -> timedelta | None:
    """Return the width of a point that is asked for."""
    return None if seconds is None else timedelta(seconds=seconds)


async def host_series(visit: PageRequest, asked: HostQuery) -> Part:
    """Return CPU, memory and disk of each host."""
    since, until = await span_of(visit, asked.since, asked.until)
    found = await visit.admin.stats.hosts(since, until, step=step_of(asked.step), host=asked.host)
    return page_by_name(found, asked, name=lambda one: one.source)


async def storage_series(visit: PageRequest, asked: StorageQuery) -> GaugeSeries:
    """Return the size of the storage, its jobs by state and its answer times."""
    since, until = await span_of(visit, asked.since, asked.until)
    return await visit.admin.stats.storage(since, until, step=step_of(asked.step))


SERIES = (
    Endpoint(
        method="GET",
        path="/hosts/series",
        answer=host_series,
        asked=HostQuery,
        told=Sequence[GaugeSeries],
        title="Show CPU, memory and disk use of each host over time",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/storage/series",
        answer=storage_series,
        asked=StorageQuery,
        told=GaugeSeries,
        title="Show the size, the jobs by state and the answer times of the storage over time",
        heavy=True,
    ),
)
