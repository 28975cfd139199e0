"""``windlass audit``: who has ordered what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

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


@click.command()
@target_argument
@click.option("--subject", metavar="SUBJECT", help='Only about this, such as "queue mail".')
@click.option("--limit", type=click.IntRange(1, 1000), default=25, show_default=True)
@click.option("--before", type=int, metavar="NUMBER", help="The next page: the last one's number.")
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
    """What people have ordered, the latest first: from Python, from here, from the dashboard."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> Sequence[AuditRecord]:
        return await app.admin.audit.list(limit=limit, before=before, subject=subject)

    found = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([_fields(record) for record in found])
    elif not found:
        click.echo("Nothing was ordered here." if before is None else "There is nothing older.")
    else:
        titles = ("when", "who", "what", "about", f"{NUMBER}count", "detail")
        print_table(titles, map(_row, found))
        if len(found) == limit:
            click.echo(f"There may be older ones: --before {found[-1].number}")
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
