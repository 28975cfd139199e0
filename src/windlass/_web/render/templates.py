"""Pages out of templates. Every value from outside is escaped, on every page."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from windlass._admin.doctor.finding import format_bytes
from windlass._core.job.ids import short_id
from windlass._observe.log import brief, error_in_one_line, printable
from windlass._web.render.assets import Assets

if TYPE_CHECKING:
    from windlass._web.request import PageRequest

__all__ = [
    "NAVIGATION",
    "NavigationEntry",
    "Templates",
    "compact_number",
    "duration_text",
    "escape_controls",
    "relative_time",
]

_SHORTEST = timedelta(microseconds=500)
_LINES = re.compile(r"[\n\t]")


class NavigationEntry(msgspec.Struct, frozen=True):
    """One line of it."""

    title: str
    path: str
    icon: str
    """A name of ``templates/parts/icons.html``."""
    key: str
    """``g`` and this letter lead there."""


NAVIGATION = (
    NavigationEntry("Overview", "/overview", "overview", "o"),
    NavigationEntry("Jobs", "/jobs", "jobs", "j"),
    NavigationEntry("Flows", "/flows", "flows", "f"),
    NavigationEntry("Errors", "/errors", "errors", "e"),
    NavigationEntry("Tasks", "/tasks", "tasks", "t"),
    NavigationEntry("Queues", "/queues", "queues", "q"),
    NavigationEntry("Schedules", "/schedules", "schedules", "s"),
    NavigationEntry("Workers", "/workers", "workers", "w"),
    NavigationEntry("Hosts", "/hosts", "hosts", "h"),
    NavigationEntry("Limits", "/limits", "limits", "l"),
    NavigationEntry("Events", "/events", "events", "v"),
    NavigationEntry("Audit", "/audit", "audit", "a"),
    NavigationEntry("Storage", "/storage", "storage", "d"),
    NavigationEntry("Plugins", "/plugins", "plugins", "p"),
)


def escape_controls(value: object) -> object:
    """Write control characters of a terminal or of text direction as escapes; line ends and tabs
    stay. Called for every value that a template shows.
    """
    if isinstance(value, Markup) or not isinstance(value, str) or value.isprintable():
        return value
    parts = _LINES.split(value)
    ends = [*_LINES.findall(value), ""]
    return "".join(f"{printable(part)}{end}" for part, end in zip(parts, ends, strict=True))


def compact_number(number: float) -> str:
    """Return 1,234 as it is; 12.3k, 4.56M from where the last digits only flicker."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            scaled = number / (1e3 if unit == "k" else size)
            return f"{scaled:.3g}{unit}" if scaled < 1000 else f"{scaled:,.0f}{unit}"
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def duration_text(span: timedelta) -> str:
    """Return a duration as everywhere; a short one is never shown as none."""
    return "< 1 ms" if timedelta(0) < span < _SHORTEST else brief(span)


def relative_time(at: datetime, now: datetime) -> str:
    """Return how long ago, or how soon."""
    span = now - at
    if abs(span) < timedelta(seconds=1):
        return "now"
    return f"{brief(span)} ago" if span > timedelta(0) else f"in {brief(-span)}"


def _exact(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds")


@functools.cache
def _environment() -> Environment:
    """Return one environment for all dashboards of a process: templates are compiled once."""
    made = Environment(
        loader=PackageLoader("windlass._web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=escape_controls,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals["navigation"] = NAVIGATION
    made.filters.update(
        compact=compact_number,
        duration=duration_text,
        relative=relative_time,
        exact=_exact,
        iso=_iso,
        size=format_bytes,
        error_line=error_in_one_line,
        short=short_id,
    )
    return made


class Templates:
    """The pages of one dashboard."""

    def __init__(self, assets: Assets, title: str) -> None:
        """``title``: what the dashboard is called."""
        self._always = {"asset": assets.name, "dashboard_title": title, "now": None, "notice": None}

    def respond(
        self, template: str, visit: PageRequest, /, *, code: int = 200, **context: Any
    ) -> Response:
        """Return the page as a response. For a part of it the frame is left out."""
        layout = "fragment.html" if visit.partial else "layout.html"
        shown = {**self._always, **context, "visit": visit, "layout": layout}
        text = _environment().get_template(template).render(shown)
        return HTMLResponse(text, status_code=code, headers={"Vary": "HX-Request, Cookie"})
