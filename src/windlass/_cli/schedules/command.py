"""``windlass schedules``: list, trigger, pause and change schedules while workers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass._app.parts import parts_of
from windlass._cli.options import name_completion, optional_values
from windlass._cli.options.confirmation import confirm
from windlass._cli.options.groups import SuggestingGroup, examples
from windlass._cli.options.schedule_rules import json_arguments, rule_of, rule_options
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_and_name,
    target_argument,
    target_of,
    url_option,
)
from windlass._cli.schedules.pause import pause, resume
from windlass._cli.schedules.reading import act_on, read_schedule
from windlass._cli.schedules.tables import (
    ShownSchedule,
    fields,
    instant_in_zone,
    print_pause,
    print_schedule,
    schedule_row,
)

if TYPE_CHECKING:
    from datetime import datetime

    from windlass._app.app import Windlass
    from windlass._storage.protocol.jobs import Inserted
    from windlass._tasks.task import Call

__all__ = ["schedules"]

_names = click.argument(
    "words", metavar="[MODULE:APP] SCHEDULE", nargs=-1, shell_complete=name_completion.schedules
)
_yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def _examples(command: str, *options: str) -> str:
    """Return examples with an app, and with a URL and these options."""
    by_url = " ".join([f"windlass schedules {command} --url sqlite:///jobs.db report", *options])
    return examples(f"windlass schedules {command} shop:app report", by_url)


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass schedules list shop:app",
        "windlass schedules trigger shop:app report",
    ),
)
def schedules() -> None:
    """List, trigger, pause and change schedules.

    Changes survive restarts and deploys. `reset` returns to the values of the code.
    """


for _command in (pause, resume):
    schedules.add_command(_command)


@schedules.command(
    "list",
    epilog=examples(
        "windlass schedules list shop:app",
        "windlass schedules list --url sqlite:///jobs.db --all --json",
    ),
)
@target_argument
@click.option("--all", "everything", is_flag=True, help="Include removed schedules.")
@url_option
@json_option
def list_schedules(target: str | None, url: str | None, *, everything: bool, as_json: bool) -> int:
    """List schedules with their rule, their next slot and the outcome of their last run."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> tuple[list[ShownSchedule], datetime | None, str]:
        now = await (await parts_of(app).storage()).now()
        found = await app.admin.schedules.list(removed=everything)
        described = (await parts_of(app).storage()).describe()
        paused = await app.admin.schedules.paused()
        return [ShownSchedule(report, now) for report in found], paused, described

    found, paused, described = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        click.echo(
            f"{described} has no schedules. Write @app.schedule(Cron('0 8 * * *')) above a task. "
            f"It is stored when a worker starts."
        )
    else:
        titles = ("schedule", "when", "state", "next", "last run", f"{NUMBER}failures in a row")
        print_table(titles, map(schedule_row, found))
    print_pause(paused)
    return 0


@schedules.command(epilog=_examples("show", "--json"))
@_names
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Show a schedule: its rule, next slots, last runs, and who changed it."""
    where, name = target_and_name(words, url, "schedule")
    print_schedule(read_schedule(where, name), as_json=as_json)
    return 0


@schedules.command(
    epilog=examples(
        'windlass schedules preview --cron "30 8 * * 1-5" --tz Europe/Berlin',
        "windlass schedules preview --every 90m --count 10",
    )
)
@rule_options
@click.option(
    "--count",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Number of slots to show.",
)
@json_option
def preview(*, count: int, as_json: bool, **given: Any) -> int:
    """Describe a rule in words and show when it would fire next. Needs no storage."""
    from windlass._cli.output.tables import print_json
    from windlass._core.schedule.describe import describe_rule
    from windlass._core.schedule.schedule import next_slots
    from windlass._system.seams import SYSTEM_CLOCK

    rule = rule_of(given)
    if rule is None:
        raise click.UsageError("give a rule: --cron, --every, --once or --manual")
    slots = next_slots(rule, SYSTEM_CLOCK.now(), count)
    if as_json:
        print_json({"words": describe_rule(rule), "slots": slots})
        return 0
    click.echo(describe_rule(rule))
    for slot in slots:
        click.echo(f"  {instant_in_zone(slot, getattr(rule, 'tz', 'UTC'))}")
    return 0


@schedules.command(
    epilog=examples(
        'windlass schedules create shop:app nightly --task send_report --cron "0 2 * * *"',
        'windlass schedules create shop:app eu --task send_report --args \'{"region": "eu"}\' '
        "--every 1h",
    )
)
@_names
@rule_options
@click.option("--task", required=True, help="Name of the task to run.")
@click.option("--args", "arguments", default="{}", help="Its arguments, as a JSON object.")
@optional_values.schedule_options
@url_option
@json_option
def create(
    words: tuple[str, ...],
    url: str | None,
    task: str,
    arguments: str,
    *,
    as_json: bool,
    **given: Any,
) -> int:
    """Create a schedule. Needs the app that has the task."""
    where, name = target_and_name(words, url, "schedule")
    rule = rule_of(given)
    if rule is None:
        raise click.UsageError("give a rule: --cron, --every, --once or --manual")
    if where.target is None:
        message = f"name the app that has the task: windlass schedules create shop:app {name} …"
        raise click.UsageError(message)
    options = optional_values.changes(given)

    async def act(app: Windlass) -> None:
        call = _call(app, task, arguments)
        await app.admin.schedules.create(name, rule, call, **options)

    print_schedule(act_on(where, name, act), as_json=as_json)
    return 0


@schedules.command(
    "set",
    epilog=examples(
        'windlass schedules set shop:app report --cron "0 9 * * *" --tz Europe/Berlin',
        "windlass schedules set shop:app report --overlap queue --jitter 30s",
    ),
)
@_names
@rule_options
@click.option("--args", "arguments", help="New arguments, as a JSON object. Needs the app.")
@optional_values.schedule_options
@url_option
@json_option
def set_schedule(
    words: tuple[str, ...],
    url: str | None,
    arguments: str | None,
    *,
    as_json: bool,
    **given: Any,
) -> int:
    """Change a schedule. Options that you leave out keep their value."""
    where, name = target_and_name(words, url, "schedule")
    rule = rule_of(given)
    changed = optional_values.changes(given)
    if rule is not None:
        changed["rule"] = rule
    if arguments is not None and where.target is None:
        raise click.UsageError("--args needs the app that has the task: shop:app SCHEDULE")
    if arguments is None:
        optional_values.require_change(changed, "a rule, --args, --missed, --overlap, --jitter, …")

    async def act(app: Windlass) -> None:
        call = None
        if arguments is not None:
            plan = (await app.admin.schedules.get(name)).plan
            if plan is None or plan.job is None:
                raise click.ClickException(f"Schedule {name!r} is a chore: it has no arguments.")
            call = _call(app, plan.job.task, arguments)
        await app.admin.schedules.change(name, call=call, **changed)

    print_schedule(act_on(where, name, act), as_json=as_json)
    return 0


@schedules.command(epilog=_examples("trigger", "--json"))
@_names
@url_option
@json_option
def trigger(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Run a schedule now, in addition to its slots."""
    from windlass._cli.output.tables import print_json

    where, name = target_and_name(words, url, "schedule")

    async def act(app: Windlass) -> Inserted | None:
        return await app.admin.schedules.trigger(name)

    job = run_on_target(where, act)
    if as_json:
        made = {"job": None} if job is None else {"job": job.id, "created": job.created}
        print_json({"name": name, **made})
    elif job is None:
        click.echo(f"{name} is a chore: a worker runs it at once.")
    elif job.created:
        click.echo(f"Enqueued job {job.id}.")
    else:
        click.echo(f"Enqueued no job: job {job.id} holds its unique key.")
    return 0


@schedules.command(
    epilog=examples(
        "windlass schedules remove shop:app report",
        "windlass schedules remove shop:app report --cancel-runs --yes",
    )
)
@_names
@click.option("--cancel-runs", is_flag=True, help="Also cancel its waiting and running jobs.")
@_yes
@url_option
def remove(words: tuple[str, ...], url: str | None, *, cancel_runs: bool, yes: bool) -> int:
    """Remove a schedule, also if the code declares it. `reset` restores it."""
    where, name = target_and_name(words, url, "schedule")
    _confirm(f"Remove schedule {name}?", yes=yes)

    async def act(app: Windlass) -> bool:
        declared = (await app.admin.schedules.get(name)).declared
        await app.admin.schedules.remove(name, cancel_runs=cancel_runs)
        return declared

    declared = run_on_target(where, act)
    rest = " Workers that declare it do not restore it; `reset` does." if declared else ""
    click.echo(f"Schedule {name} is removed.{rest}")
    return 0


@schedules.command(epilog=_examples("reset"))
@_names
@url_option
@json_option
def reset(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Undo all changes to a schedule, also a pause or a removal: use the values of the code."""
    where, name = target_and_name(words, url, "schedule")
    shown = act_on(where, name, lambda app: app.admin.schedules.reset(name))
    print_schedule(shown, as_json=as_json)
    return 0


@schedules.command(epilog=_examples("delete", "--yes"))
@_names
@_yes
@url_option
def delete(words: tuple[str, ...], url: str | None, *, yes: bool) -> int:
    """Delete a schedule and its history. If the code declares it, it comes back: see `remove`."""
    where, name = target_and_name(words, url, "schedule")
    _confirm(f"Delete schedule {name} and its history?", yes=yes)

    async def act(app: Windlass) -> None:
        await app.admin.schedules.delete(name)

    run_on_target(where, act)
    click.echo(f"Schedule {name} is deleted.")
    return 0


def _call(app: Windlass, task: str, arguments: str) -> Call[Any]:
    parts_of(app).load()
    return app.tasks[task].call(**json_arguments(arguments))


def _confirm(question: str, *, yes: bool) -> None:
    if not yes:
        confirm(question)
