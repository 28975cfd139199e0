"""``windlass db drop`` and ``reset``: delete everything in a storage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from windlass._cli.options.groups import examples
from windlass._cli.options.target import (
    refuse_missing_file,
    settings_of,
    target_argument,
    target_of,
    url_option,
    who,
)

if TYPE_CHECKING:
    from windlass._storage.open import StorageOpener
    from windlass._storage.protocol.storage import Storage

__all__ = ["drop", "reset"]

_yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_force = click.option("--force", is_flag=True, help="Also while workers are live.")


@click.command(
    epilog=examples(
        "windlass db drop shop:app",
        "windlass db drop --url sqlite:///jobs.db --yes",
    )
)
@target_argument
@_yes
@_force
@url_option
def drop(target: str | None, url: str | None, *, yes: bool, force: bool) -> int:
    """Delete a storage: all jobs, schedules, limits, settings and history.

    It deletes the SQLite file, the PostgreSQL schema or the Redis keys. Stop workers and everything
    that enqueues first: it is refused while a worker is live.
    """
    opener = _opener(target, url)
    described = asyncio.run(_agreed(opener, "Delete", yes=yes, force=force))
    asyncio.run(opener.drop())
    click.echo(f"Deleted everything in {described}.")
    return 0


@click.command(
    epilog=examples(
        "windlass db reset shop:app",
        "windlass db reset --url sqlite:///jobs.db --yes",
    )
)
@target_argument
@_yes
@_force
@url_option
def reset(target: str | None, url: str | None, *, yes: bool, force: bool) -> int:
    """Delete a storage and create it again, empty. See `drop`."""
    opener = _opener(target, url)
    described = asyncio.run(_agreed(opener, "Reset", yes=yes, force=force))
    asyncio.run(_reset(opener))
    click.echo(f"Reset {described}. It is empty.")
    return 0


def _opener(target: str | None, url: str | None) -> StorageOpener:
    import msgspec

    from windlass._core.values.redaction import redacted_url
    from windlass._storage.open import StorageOpener

    settings = settings_of(target_of(target, url))
    refuse_missing_file(settings)
    opener = StorageOpener(msgspec.structs.replace(settings, migrate="auto"))
    if not opener.shared:
        raise click.ClickException(f"{redacted_url(settings.url)} ends with its process anyway")
    return opener


async def _agreed(opener: StorageOpener, verb: str, *, yes: bool, force: bool) -> str:
    """Check that no worker is live, and ask. Return the description of the storage."""
    from windlass._admin.copy.checks import refuse_workers
    from windlass.errors import StorageError

    storage = await opener.open()
    try:
        if not force:
            await refuse_workers(storage, StorageError)
        described = storage.describe()
        if not yes:
            _ask(f"{verb} {await _jobs(storage)} and everything else in {described}?", opener.name)
        return described
    finally:
        await storage.close()


def _ask(question: str, name: str) -> None:
    click.echo(question)
    if click.prompt(f"This cannot be undone. Type {name} to confirm", default="") != name:
        raise click.ClickException("that is another name: nothing was deleted")


async def _jobs(storage: Storage) -> str:
    from windlass._admin.explain.cause import plural
    from windlass._core.job.state import Shown

    states = [state for state in Shown if state is not Shown.RETRYING]  # counted in others
    counts = await storage.admin.counts()
    return plural(sum(getattr(one, state) for one in counts for state in states), "job")


async def _reset(opener: StorageOpener) -> None:
    from windlass._storage.protocol.actions import AuditNote
    from windlass._system.seams import new_job_id

    await opener.drop(for_reset=True)
    storage = await opener.open()
    try:
        note = AuditNote(id=new_job_id(), who=who(), what="storage.reset", subject="storage")
        await storage.orders.record(note, 1)
    finally:
        await storage.close()
