"""``windlass doctor``: check for problems and suggest fixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windlass._cli.exit_codes import IN_ORDER, UNHEALTHY
from windlass._cli.options.groups import examples
from windlass._cli.options.target import (
    Target,
    json_option,
    run_on_target,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._admin.doctor.doctor import Finding
    from windlass._app.app import Windlass

__all__ = ["doctor"]

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "bad": ("✗", "red")}


@click.command(
    epilog=examples(
        "windlass doctor shop:app",
        "windlass doctor --url sqlite:///jobs.db --strict --quiet",
    )
)
@target_argument
@click.option("--strict", is_flag=True, help="Exit with 2 for warnings, too.")
@click.option("--quiet", is_flag=True, help="Print only warnings and problems.")
@url_option
@json_option
def doctor(target: str | None, url: str | None, *, strict: bool, quiet: bool, as_json: bool) -> int:
    """Check for problems and suggest fixes.

    It checks the storage and its settings, wake-ups, clocks, queues without workers, and jobs of
    unknown tasks. With an app it also checks whether waiting jobs still fit their functions. It
    changes no job and no setting of yours. To test wake-ups, it pauses and resumes the queue
    windlass-doctor.

    \b
    Exit code  0  no problem
               2  a problem; with --strict also a warning
               1  the checks could not run
    """  # noqa: D301 -- click's mark for lines that stay as they are

    async def question(app: Windlass) -> Sequence[Finding]:
        return await app.admin.doctor.check(tasks=app.tasks)

    where = target_of(target, url)
    found = run_on_target(where, question)
    told = [one for one in found if not (quiet and one.level == "ok")]
    if as_json:
        from windlass._cli.output.tables import print_json

        print_json(told)
    else:
        _print(told, where)
        if told or not quiet:  # cron sends a mail for any output
            _sum_up(found, checked_payloads=target is not None)
    levels = {one.level for one in found}
    ill = "bad" in levels or (strict and "warn" in levels)
    return UNHEALTHY if ill else IN_ORDER


def _print(found: Sequence[Finding], where: Target) -> None:
    from windlass._admin.explain.cause import with_target
    from windlass._cli.output.tables import print_line
    from windlass._observe.log import printable

    for one in found:
        mark, colour = _MARKS[one.level]
        print_line(f"{click.style(mark, fg=colour, bold=True)} {printable(one.text)}")
        if one.fix:
            print_line(f"  → {printable(with_target(one.fix, where.target, where.url))}")


def _sum_up(found: Sequence[Finding], *, checked_payloads: bool) -> None:
    from windlass._admin.doctor.finding import count_by_level

    click.echo(
        f"\n{count_by_level(found)}."
        + ("" if checked_payloads else " Name an app (MODULE:APP) to check waiting jobs, too.")
    )
