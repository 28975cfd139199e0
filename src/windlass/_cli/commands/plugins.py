"""``windlass plugins``: the plugins of an app and their permissions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass._cli.options.groups import SuggestingGroup, examples
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_and_name,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._admin.plugins import PluginReport, PluginTaskReport
    from windlass._app.app import Windlass
    from windlass._core.values.grants import Grants

__all__ = ["plugins"]

_NONE = "–"


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass plugins list shop:app",
        "windlass plugins show shop:app windlass",
    ),
)
def plugins() -> None:
    """Show plugins and their permissions.

    Name the app: its plugins are part of its code. Without one you see only those of Windlass.
    """


@plugins.command(
    "list",
    epilog=examples(
        "windlass plugins list shop:app",
        "windlass plugins list shop:app --json",
    ),
)
@target_argument
@url_option
@json_option
def list_plugins(target: str | None, url: str | None, *, as_json: bool) -> int:
    """List the plugins of the app."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table
    from windlass._plugins.entry_points import installable

    async def question(app: Windlass) -> Sequence[PluginReport]:
        return await app.admin.plugins.list()

    found = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([_fields(plugin) for plugin in found])
        return 0
    counts = tuple(f"{NUMBER}{name}" for name in ("tasks", "schedules", "running"))
    print_table(("plugin", *counts, "queues", "description"), map(_row, found))
    idle = sorted(installable().keys() - {plugin.name for plugin in found})
    if idle:
        click.echo(
            f"Installed packages also offer {', '.join(idle)}. Name them in the settings to load "
            f"them.",
            err=True,
        )
    return 0


@plugins.command(
    epilog=examples(
        "windlass plugins show shop:app windlass",
        "windlass plugins show shop:app windlass --json",
    )
)
@click.argument("words", metavar="[MODULE:APP] PLUGIN", nargs=-1)
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Show a plugin: its tasks, schedules and permissions."""
    from windlass._cli.output.tables import print_json, print_pairs, print_table

    where, name = target_and_name(words, url, "plugin")

    async def question(app: Windlass) -> PluginReport:
        return await app.admin.plugins.get(name)

    plugin = run_on_target(where, question)
    if as_json:
        print_json(_fields(plugin))
        return 0
    print_pairs(plugin.name, _pairs(plugin))
    if plugin.tasks:
        click.echo()
        titles = ("task", "queue", "at once", "timeout", "attempts", "breaker", "description")
        print_table(titles, map(_task_row, plugin.tasks))
    if plugin.schedules:
        click.echo()
        print_table(
            ("schedule", "when", "runs"),
            [
                (one.name, one.words, one.task or "a chore, without a job")
                for one in plugin.schedules
            ],
        )
    return 0


def _row(plugin: PluginReport) -> tuple[str, ...]:
    return (
        plugin.name,
        str(len(plugin.tasks)),
        str(len(plugin.schedules)),
        _running(plugin),
        ", ".join(plugin.grants.queues) or _NONE,
        _first_line(plugin.documentation),
    )


def _running(plugin: PluginReport) -> str:
    most = plugin.grants.max_running
    return _NONE if most is None else f"{plugin.running or 0:,} of {most:,}"


def _first_line(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split()) or _NONE


def _pairs(plugin: PluginReport) -> Iterator[tuple[str, str]]:
    yield "description", " ".join(plugin.documentation.split()) or _NONE
    yield "running", _running(plugin)
    yield "needs services", ", ".join(plugin.services) or _NONE
    yield "has middleware", str(plugin.middleware)
    yield from _granted(plugin.grants)


def _granted(grants: Grants) -> Iterator[tuple[str, str]]:
    said = {name: getattr(grants, name) for name in ("tasks", "schedules", "chores")}
    yield "may add", ", ".join(name for name, given in said.items() if given) or "nothing"
    yield "may use queues", ", ".join(grants.queues) or "none"
    most = grants.max_running
    yield "max running", "no limit" if most is None else f"{most:,} over all workers"
    around = {None: "no", "own": "around its own jobs", "all": "around every job"}
    yield "may add middleware", around[grants.middleware]
    yield "may use services", ", ".join(grants.services) or "none"


def _task_row(task: PluginTaskReport) -> tuple[str, ...]:
    from windlass._settings.durations import format_duration

    return (
        task.name,
        task.queue,
        "no limit" if task.concurrency is None else f"{task.concurrency:,}",
        _NONE if task.timeout is None else format_duration(task.timeout),
        str(task.max_attempts),
        "yes" if task.breaker else "no",
        _first_line(task.documentation),
    )


def _fields(plugin: PluginReport) -> dict[str, Any]:
    """Return the fields for machines. Never rename them."""
    import msgspec

    from windlass._settings.durations import format_backoff

    fields: dict[str, Any] = msgspec.structs.asdict(plugin)
    fields["tasks"] = [
        {
            **msgspec.structs.asdict(task),
            "timeout": None if task.timeout is None else task.timeout.total_seconds(),
            "backoff": None if task.backoff is None else format_backoff(task.backoff),
        }
        for task in plugin.tasks
    ]
    return fields
