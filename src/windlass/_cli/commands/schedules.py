"""``windlass schedules``: what fires when, looked at and changed while everything runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from windlass._app.parts import parts_of
from windlass._cli.commands.schedule_tables import (
    ShownSchedule,
    fields,
    instant_in_zone,
    next_slot_in_words,
    print_change,
    print_schedule,
    schedule_row,
)
from windlass._cli.options import name_completion, optional_values
from windlass._cli.options.groups import SuggestingGroup
from windlass._cli.options.schedule_rules import json_arguments, rule_of, rule_options
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
    from windlass._storage.protocol.jobs import Inserted
    from windlass._tasks.task import Call

__all__ = ["schedules"]

_names = click.argument(
    "words", metavar="[MODULE:APP] SCHEDULE", nargs=-1, shell_complete=name_completion.schedules
)
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group(cls=SuggestingGroup)
def schedules() -> None:
    """Look at schedules, run them now, pause them, change them.

    What is changed here holds, over restarts and deploys, until `reset` goes back to what the
    code says.
    """


@schedules.command("list")
@target_argument
@click.option("--all", "everything", is_flag=True, help="Also those that were removed.")
@url_option
@json_option
def list_schedules(target: str | None, url: str | None, *, everything: bool, as_json: bool) -> int:
    """Every schedule: when it fires, when next, and how its last run ended."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> tuple[list[ShownSchedule], str]:
        now = await (await parts_of(app).storage()).now()
        found = await app.admin.schedules.list(removed=everything)
        described = (await parts_of(app).storage()).describe()
        return [ShownSchedule(report, now) for report in found], described

    found, described = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        click.echo(
            f"No schedule is stored in {described}. Write @app.schedule(Cron('0 8 * * *')) above "
            f"a task; it is stored when a worker starts."
        )
    else:
        titles = ("schedule", "when", "state", "next", "last run", f"{NUMBER}failures in a row")
        print_table(titles, map(schedule_row, found))
    return 0


@schedules.command()
@_names
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """One schedule: its rule, its next slots, its last runs, and who changed it."""
    where, name = target_and_name(words, url, "schedule")
    print_schedule(_ask(where, name), as_json=as_json)
    return 0


@schedules.command()
@rule_options
@click.option("--count", type=click.IntRange(1, 100), default=5, show_default=True)
@json_option
def preview(*, count: int, as_json: bool, **given: Any) -> int:
    """When a rule would fire next, in plain words and instants. Touches no storage."""
    from windlass._cli.output.tables import print_json
    from windlass._core.schedule.describe import describe_rule
    from windlass._core.schedule.schedule import next_slots
    from windlass._system.seams import SYSTEM_CLOCK

    rule = rule_of(given)
    if rule is None:
        raise click.UsageError("say which rule: --cron, --every, --once or --manual")
    slots = next_slots(rule, SYSTEM_CLOCK.now(), count)
    if as_json:
        print_json({"words": describe_rule(rule), "slots": slots})
        return 0
    click.echo(describe_rule(rule))
    for slot in slots:
        click.echo(f"  {instant_in_zone(slot, getattr(rule, 'tz', 'UTC'))}")
    return 0


@schedules.command()
@_names
@rule_options
@click.option("--task", required=True, help="The task to run, by its name.")
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
    """Make a schedule at run time. Needs the app, which knows the task."""
    where, name = target_and_name(words, url, "schedule")
    rule = rule_of(given)
    if rule is None:
        raise click.UsageError("say when: --cron, --every, --once or --manual")
    if where.target is None:
        message = f"name the app that has the task: windlass schedules create shop:app {name} …"
        raise click.UsageError(message)
    options = optional_values.changes(given)

    async def order(app: Windlass) -> None:
        call = _call(app, task, arguments)
        await app.admin.schedules.create(name, rule, call, **options)

    print_schedule(_order(where, name, order), as_json=as_json)
    return 0


@schedules.command("set")
@_names
@rule_options
@click.option("--args", "arguments", help="Other arguments, as a JSON object. Needs the app.")
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
    """Change a schedule. What is not given stays as it is."""
    where, name = target_and_name(words, url, "schedule")
    rule = rule_of(given)
    changed = optional_values.changes(given)
    if rule is not None:
        changed["rule"] = rule
    if arguments is not None and where.target is None:
        raise click.UsageError("--args needs the app, which knows the task: shop:app SCHEDULE")
    if arguments is None:
        optional_values.require_change(changed, "a rule, --args, --missed, --overlap, --jitter, …")

    async def order(app: Windlass) -> None:
        call = None
        if arguments is not None:
            plan = (await app.admin.schedules.get(name)).plan
            if plan is None or plan.job is None:
                raise click.ClickException(f"Schedule {name!r} is a chore: it has no arguments.")
            call = _call(app, plan.job.task, arguments)
        await app.admin.schedules.change(name, call=call, **changed)

    print_schedule(_order(where, name, order), as_json=as_json)
    return 0


@schedules.command()
@_names
@url_option
@json_option
def pause(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Fire nothing until it is resumed. Runs under way go on."""
    where, name = target_and_name(words, url, "schedule")
    shown = _order(where, name, lambda app: app.admin.schedules.pause(name))
    print_change(shown, f"Schedule {name} is paused.", as_json=as_json)
    return 0


@schedules.command()
@_names
@url_option
@json_option
def resume(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Undo pause: fire again from the next slot on."""
    where, name = target_and_name(words, url, "schedule")
    shown = _order(where, name, lambda app: app.admin.schedules.resume(name))
    print_change(
        shown,
        f"Schedule {name} is {shown.report.state}. {next_slot_in_words(shown)}",
        as_json=as_json,
    )
    return 0


@schedules.command()
@_names
@url_option
@json_option
def trigger(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Run it now, beside its slots."""
    from windlass._cli.output.tables import print_json

    where, name = target_and_name(words, url, "schedule")

    async def order(app: Windlass) -> Inserted | None:
        return await app.admin.schedules.trigger(name)

    job = run_on_target(where, order)
    if as_json:
        made = {"job": None} if job is None else {"job": job.id, "created": job.created}
        print_json({"name": name, **made})
    elif job is None:
        click.echo(f"{name} is a chore: a worker runs it at once.")
    elif job.created:
        click.echo(f"Job {job.id} was made.")
    else:
        click.echo(f"No job was made: job {job.id} holds its unique key.")
    return 0


@schedules.command()
@_names
@click.option("--cancel-runs", is_flag=True, help="Cancel what is waiting or running of it, too.")
@_yes
@url_option
def remove(words: tuple[str, ...], url: str | None, *, cancel_runs: bool, yes: bool) -> int:
    """Fire no more, whatever code declares. `reset` brings it back."""
    where, name = target_and_name(words, url, "schedule")
    _confirm(f"Remove schedule {name}?", yes=yes)

    async def order(app: Windlass) -> bool:
        declared = (await app.admin.schedules.get(name)).declared
        await app.admin.schedules.remove(name, cancel_runs=cancel_runs)
        return declared

    declared = run_on_target(where, order)
    rest = " and stays so; `reset` brings it back." if declared else "."
    click.echo(f"Schedule {name} is removed{rest}")
    return 0


@schedules.command()
@_names
@url_option
@json_option
def reset(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Back to what the code says, whatever was changed, paused or removed."""
    where, name = target_and_name(words, url, "schedule")
    shown = _order(where, name, lambda app: app.admin.schedules.reset(name))
    print_schedule(shown, as_json=as_json)
    return 0


@schedules.command()
@_names
@_yes
@url_option
def delete(words: tuple[str, ...], url: str | None, *, yes: bool) -> int:
    """Forget a schedule and its history. Code that declares it brings it back: see remove."""
    where, name = target_and_name(words, url, "schedule")
    _confirm(f"Delete schedule {name} and its history?", yes=yes)

    async def order(app: Windlass) -> None:
        await app.admin.schedules.delete(name)

    run_on_target(where, order)
    click.echo(f"Schedule {name} is deleted.")
    return 0


# --- asking ---------------------------------------------------------------------------------------


def _ask(where: Target, name: str) -> ShownSchedule:
    async def question(app: Windlass) -> ShownSchedule:
        return await _shown(app, name)

    return run_on_target(where, question)


def _order(
    where: Target, name: str, order: Callable[[Windlass], Awaitable[object]]
) -> ShownSchedule:
    async def ordered(app: Windlass) -> ShownSchedule:
        await order(app)
        return await _shown(app, name)

    return run_on_target(where, ordered)


async def _shown(app: Windlass, name: str) -> ShownSchedule:
    report = await app.admin.schedules.get(name)
    return ShownSchedule(report, await (await parts_of(app).storage()).now())


def _call(app: Windlass, task: str, arguments: str) -> Call[Any]:
    parts_of(app).load()
    return app.tasks[task].call(**json_arguments(arguments))


def _confirm(question: str, *, yes: bool) -> None:
    if not yes:
        click.confirm(question, abort=True)
