"""``windlass queues``: list, pause and configure queues while workers run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass._app.parts import parts_of
from windlass._cli.options import name_completion, optional_values
from windlass._cli.options.groups import SuggestingGroup, examples
from windlass._cli.options.target import (
    Target,
    json_option,
    run_on_target,
    target_and_name,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._storage.protocol.admin import QueueCounts
    from windlass._storage.protocol.queues import QueueRecord

__all__ = ["queues"]

_names = click.argument(
    "words", metavar="[MODULE:APP] QUEUE", nargs=-1, shell_complete=name_completion.queues
)
_SETTINGS = "--max-running, --backoff, --cool-down, --keep-succeeded or --keep-failed"


class _Queue(NamedTuple):
    record: QueueRecord
    counts: QueueCounts
    now: datetime

    @property
    def cooling(self) -> bool:
        until = self.record.cool_until
        return until is not None and until > self.now


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass queues list shop:app",
        "windlass queues pause shop:app mail",
    ),
)
def queues() -> None:
    """List, pause and configure queues.

    A setting reaches every worker within a second and survives restarts. Without one, the value of
    the task counts, then that of the app.
    """


@queues.command(
    "list",
    epilog=examples(
        "windlass queues list shop:app",
        "windlass queues list --url sqlite:///jobs.db --exact",
    ),
)
@target_argument
@click.option(
    "--exact", is_flag=True, help="Count every job. Otherwise large counts end in a plus."
)
@url_option
@json_option
def list_queues(target: str | None, url: str | None, *, exact: bool, as_json: bool) -> int:
    """List queues with jobs or settings, and those of the app's tasks."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> tuple[list[_Queue], str]:
        return await _all(app, exact=exact), (await parts_of(app).storage()).describe()

    found, described = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([_fields(queue) for queue in found])
    elif not found:
        click.echo(f"No queue has jobs or settings in {described}.")
    else:
        titles = ("queue", *(f"{NUMBER}{name}" for name in (*_COLUMNS, "lag")), "state")
        rows = [_row(queue) for queue in found]
        print_table(titles, rows)
        if any(cell.endswith("+") for row in rows for cell in row[1 : len(_COLUMNS) + 1]):
            click.echo("A plus means at least this many. --exact counts all of them.")
    return 0


@queues.command(
    epilog=examples(
        "windlass queues show shop:app mail",
        "windlass queues show --url sqlite:///jobs.db mail --json",
    )
)
@_names
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Show a queue: its jobs, its settings, and whether it is paused or cooling down."""
    where, name = target_and_name(words, url, "queue")

    async def question(app: Windlass) -> _Queue:
        return await _known(app, name)

    _tell(run_on_target(where, question), as_json=as_json)
    return 0


def _add_action(
    name: str,
    about: str,
    act: Callable[[Windlass, str], Awaitable[object]],
    outcome: str,
    *,
    new: bool = False,
) -> None:
    """Add a command that acts on one queue and prints the outcome."""

    @queues.command(
        name,
        help=about,
        epilog=examples(
            f"windlass queues {name} shop:app mail",
            f"windlass queues {name} --url sqlite:///jobs.db mail",
        ),
    )
    @_names
    @url_option
    @json_option
    def command(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
        where, queue = target_and_name(words, url, "queue")
        shown = _act_on(where, queue, lambda app: act(app, queue), new=new)
        _say(shown, f"Queue {queue} {outcome}. {_waiting(shown)}", as_json=as_json)
        return 0


_add_action(
    "pause",
    "Pause a queue on all workers. Running jobs finish.",
    lambda app, queue: app.admin.queues.pause(queue),
    "is paused",
    new=True,
)
_add_action(
    "resume",
    "Resume a paused queue on all workers.",
    lambda app, queue: app.admin.queues.resume(queue),
    "is resumed",
)
_add_action(
    "warm",
    "End the cool-down of a queue. The next cool-down is as short as the first.",
    lambda app, queue: app.admin.queues.warm(queue),
    "is not cooling down",
)


@queues.command(
    "set",
    epilog=examples(
        "windlass queues set shop:app mail --max-running 20 --keep-succeeded 7d",
        "windlass queues set shop:app mail --backoff exponential:5s,factor=5,cap=1h",
    ),
)
@_names
@click.option(
    "--max-running",
    type=optional_values.COUNT,
    metavar=optional_values.COUNT.name,
    help="Jobs of the queue that run at once, over all workers.",
)
@click.option(
    "--backoff",
    type=optional_values.BACKOFF,
    metavar=optional_values.BACKOFF.name,
    help="Retry delays of jobs whose task has no backoff.",
)
@click.option(
    "--cool-down",
    type=optional_values.BACKOFF,
    metavar=optional_values.BACKOFF.name,
    help="How long the queue pauses when it is throttled.",
)
@click.option(
    "--keep-succeeded",
    type=optional_values.DURATION,
    metavar=optional_values.DURATION.name,
    help="Retention of succeeded, cancelled and discarded jobs.",
)
@click.option(
    "--keep-failed",
    type=optional_values.DURATION,
    metavar=optional_values.DURATION.name,
    help="Retention of failed jobs.",
)
@url_option
@json_option
def set_queue(words: tuple[str, ...], url: str | None, *, as_json: bool, **given: object) -> int:
    """Change the settings of a queue. The value none removes a setting.

    \b
    WAITS  5s                                  the same each time
           linear:10s,step=10s,cap=5m          10 s more each time
           exponential:5s,factor=5,cap=1h      five times as long each time
           waits:1s,1m,1h                      this list, then its last value again
           0s                                  no delay
           each may end in ,jitter=none|spread|full, as in fixed:5s,jitter=full
    TIME   250ms, 30s, 5m, 2h, 7d
    """  # noqa: D301 -- click's mark for lines that stay as they are
    where, name = target_and_name(words, url, "queue")
    wanted = optional_values.changes(given)
    optional_values.require_change(wanted, _SETTINGS)
    queue = _act_on(where, name, lambda app: app.admin.queues.set(name, **wanted), new=True)
    _tell(queue, as_json=as_json)
    return 0


# --- asking ---------------------------------------------------------------------------------------


async def _all(app: Windlass, *also: str, exact: bool = False) -> list[_Queue]:
    from windlass._storage.protocol.admin import QueueCounts
    from windlass._storage.protocol.queues import QueueRecord

    told = await (app.admin.queues.counts(cap=None) if exact else app.admin.queues.counts())
    counts = {one.queue: one for one in told}
    records = {one.queue: one for one in await app.admin.queues.list()}
    named_by_tasks = parts_of(app).queues() if len(app.tasks) else ()
    now = await (await parts_of(app).storage()).now()
    return [
        _Queue(
            records.get(name) or QueueRecord(queue=name),
            counts.get(name) or QueueCounts(queue=name),
            now,
        )
        for name in sorted({*counts, *records, *named_by_tasks, *also})
    ]


async def _known(app: Windlass, name: str) -> _Queue:
    known = {queue.record.queue: queue for queue in await _all(app)}
    if name not in known:
        message = f"{_unknown(name, known)} `windlass queues list` shows all queues."
        raise click.ClickException(message)
    return known[name]


def _unknown(name: str, known: Collection[str]) -> str:
    from windlass.errors import suggestion

    return f"Queue {name!r} has no jobs and no settings.{suggestion(name, known)}"


def _act_on(
    where: Target, name: str, act: Callable[[Windlass], Awaitable[object]], *, new: bool = False
) -> _Queue:
    """Act on a queue. ``new``: it may be unused, and then a note warns of a misspelt name."""
    from windlass._core.values.names import check_name

    check_name(name, "a queue's name")

    async def acted(app: Windlass) -> _Queue:
        known = {queue.record.queue for queue in await _all(app)}
        if not new:
            await _known(app, name)
        await act(app)
        if name not in known:
            click.echo(
                f"Note: {_unknown(name, known)} The change applies from its first job on.",
                err=True,
            )
        return next(queue for queue in await _all(app, name) if queue.record.queue == name)

    return run_on_target(where, acted)


# --- telling --------------------------------------------------------------------------------------

_COLUMNS = ("ready", "scheduled", "retrying", "running", "succeeded", "failed")
_FOLLOWS = "set by its tasks"
_KEEPS = "set by the app"


def _row(queue: _Queue) -> tuple[str, ...]:
    figures = {name: _figure(queue, name) for name in _COLUMNS}
    most = queue.record.settings.max_running
    if most is not None:
        figures["running"] += f" of {most:,}"
    return (queue.record.queue, *figures.values(), _lag(queue), _state(queue))


def _figure(queue: _Queue, name: str) -> str:
    """Return a count. Counting stops at a cap: a plus means at least this many."""
    number: int = getattr(queue.counts, name)
    cap = queue.counts.cap
    return f"{number:,}{'+' if cap is not None and number >= cap else ''}"


def _lag(queue: _Queue) -> str:
    from windlass._cli.output.tables import left

    due = queue.counts.oldest_due
    return "–" if due is None else left(queue.now, due)


def _state(queue: _Queue) -> str:
    from windlass._cli.output.tables import left

    record, states = queue.record, []
    if record.paused:
        states.append("paused")
    if queue.cooling and record.cool_until is not None:
        states.append(f"cooling down for {left(record.cool_until, queue.now)}")
    most = record.settings.max_running
    if most is not None and queue.counts.running >= most:
        states.append("full")
    return ", ".join(states) or "open"


def _waiting(queue: _Queue) -> str:
    names = ("ready", "scheduled", "running")
    return ", ".join(f"{_figure(queue, name)} {name}" for name in names) + "."


def _say(queue: _Queue, text: str, *, as_json: bool) -> None:
    from windlass._cli.output.tables import print_json

    if as_json:
        print_json(_fields(queue))
    else:
        click.echo(text)


def _tell(queue: _Queue, *, as_json: bool) -> None:
    from windlass._cli.output.tables import print_json, print_pairs
    from windlass._core.limits.cooldown import DEFAULT_COOL_DOWN
    from windlass._settings.durations import describe_backoff, format_duration

    if as_json:
        print_json(_fields(queue))
        return
    settings = queue.record.settings
    most = settings.max_running
    backoff, cool_down = settings.backoff, settings.cool_down
    kept = [
        _KEEPS if span is None else format_duration(span)
        for span in (settings.keep_succeeded, settings.keep_failed)
    ]
    ended = ("succeeded", "failed", "cancelled", "discarded")
    pairs = (
        ("state", _state(queue)),
        ("jobs", _waiting(queue)),
        ("lag", _lag(queue)),
        ("ended", ", ".join(f"{_figure(queue, name)} {name}" for name in ended)),
        ("max running", "no limit" if most is None else f"{most:,} over all workers"),
        ("backoff", _FOLLOWS if backoff is None else describe_backoff(backoff)),
        ("cool-down", _cool_down(describe_backoff(cool_down or DEFAULT_COOL_DOWN), queue)),
        ("keep succeeded", kept[0]),
        ("keep failed", kept[1]),
    )
    print_pairs(queue.record.queue, pairs)


def _cool_down(curve: str, queue: _Queue) -> str:
    usual = "" if queue.record.settings.cool_down else " (the default)"
    so_far = queue.record.cool_downs
    return f"{curve}{usual}" + (f"; {so_far} in a row so far" if so_far else "")


def _fields(queue: _Queue) -> dict[str, Any]:
    """Return the fields for machines, with settings in the form that ``set`` takes."""
    import msgspec

    from windlass._settings.durations import format_backoff, format_duration

    settings = queue.record.settings
    written: dict[str, Any] = {"max_running": settings.max_running}
    for name in ("backoff", "cool_down"):
        curve = getattr(settings, name)
        written[name] = None if curve is None else format_backoff(curve)
    for name in ("keep_succeeded", "keep_failed"):
        span = getattr(settings, name)
        written[name] = None if span is None else format_duration(span)
    counts: dict[str, Any] = msgspec.to_builtins(queue.counts)
    return {
        **counts,
        "paused": queue.record.paused,
        "cooling": queue.cooling,
        "cool_until": queue.record.cool_until,
        "cool_downs": queue.record.cool_downs,
        **written,
    }
