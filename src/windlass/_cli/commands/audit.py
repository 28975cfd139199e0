"""``windlass audit``: the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass._cli.options.groups import examples
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._storage.protocol.actions import AuditRecord

__all__ = ["audit"]


@click.command(
    epilog=examples(
        'windlass audit shop:app --subject "queue mail"',
        "windlass audit --url sqlite:///jobs.db --limit 100 --json",
    )
)
@target_argument
@click.option("--subject", metavar="SUBJECT", help='Only entries about this, such as "queue mail".')
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=25,
    show_default=True,
    help="Entries on a page.",
)
@click.option(
    "--before",
    type=int,
    metavar="NUMBER",
    help="Show the next page. The page before prints the number.",
)
@url_option
@json_option
def audit(
    target: str | None,
    url: str | None,
    subject: str | None,
    limit: int,
    before: int | None,
    *,
    as_json: bool,
) -> int:
    """Show the audit log, latest first: who did what, from Python, the CLI or the dashboard."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> Sequence[AuditRecord]:
        return await app.admin.audit.list(limit=limit, before=before, subject=subject)

    found = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([_fields(record) for record in found])
    elif not found:
        click.echo("The audit log is empty." if before is None else "There are no older entries.")
    else:
        titles = ("when", "who", "what", "about", f"{NUMBER}count", "detail")
        print_table(titles, map(_row, found))
        if len(found) == limit:
            click.echo(f"There may be older entries. Continue with --before {found[-1].number}")
    return 0


def _row(record: AuditRecord) -> tuple[str, ...]:
    note = record.note
    at = f"{record.at:%Y-%m-%d %H:%M:%S}"
    return at, note.who, note.what, note.subject, f"{record.count:,}", note.detail


def _fields(record: AuditRecord) -> dict[str, Any]:
    note = record.note
    return {
        "number": record.number,
        "at": record.at,
        "who": note.who,
        "what": note.what,
        "subject": note.subject,
        "count": record.count,
        "detail": note.detail,
    }
