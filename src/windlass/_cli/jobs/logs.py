"""``windlass jobs logs``: the stored log lines of a job, also while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from windlass._cli.options.groups import examples
from windlass._cli.options.target import json_option, run_on_target, target_and_name, url_option
from windlass._cli.output.terminal import ignore_broken_pipe

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._storage.protocol.journal import LogChunk, LogLine

__all__ = ["logs"]

_LEVELS = ("debug", "info", "warning", "error")
_EVERY = 0.5
"""Seconds between two looks: workers store lines about once a second."""


@click.command(
    epilog=examples(
        "windlass jobs logs shop:app 0198c3a7…9c4e07",
        "windlass jobs logs shop:app 0198c3a7…9c4e07 --follow --level warning",
    )
)
@click.argument("words", metavar="[MODULE:APP] ID", nargs=-1)
@click.option("--follow", is_flag=True, help="Print new lines until the job ends. Ctrl-C stops.")
@click.option(
    "--level",
    type=click.Choice(_LEVELS),
    default="debug",
    show_default=True,
    help="Only this level and above.",
)
@url_option
@json_option
def logs(
    words: tuple[str, ...], url: str | None, *, follow: bool, level: str, as_json: bool
) -> int:
    """Show the log lines of a job, run by run. The number of stored lines per run is limited.

    --json prints one list on one line. With --follow it prints one object per line.
    """
    where, name = target_and_name(words, url, "id")
    least = getattr(logging, level.upper())

    async def question(app: Windlass) -> list[dict[str, Any]]:
        kept: list[dict[str, Any]] = []
        async for chunk in _chunks(app, name, follow=follow):
            lines = [line for line in chunk.lines if line.level >= least]
            if as_json and not follow:
                kept += [_fields(chunk, line) for line in lines]
            else:
                _print(chunk, lines, as_json=as_json)
        return kept

    with ignore_broken_pipe():
        kept = run_on_target(where, question)
        if as_json and not follow:
            from windlass._cli.output.tables import print_json

            print_json(kept)
    return 0


async def _chunks(app: Windlass, name: str, *, follow: bool) -> AsyncIterator[LogChunk]:
    from windlass._core.job.state import TERMINAL

    after, over = (0, 0), False
    while True:
        # Asked before the lines: what was logged before the end is there when the end is.
        ended = (await app.admin.jobs.get(name)).state in TERMINAL
        for chunk in await app.admin.jobs.logs(name, after=after):
            after = (chunk.claim.number, chunk.number)
            yield chunk
        if over or not follow:
            return
        over = ended  # one look more: the last lines may be stored right after the end
        await asyncio.sleep(_EVERY)


def _print(chunk: LogChunk, lines: list[LogLine], *, as_json: bool) -> None:
    from windlass._cli.output.tables import print_json, print_line
    from windlass._observe.log import printable

    for line in lines:
        if as_json:
            print_json(_fields(chunk, line))
            continue
        level = logging.getLevelName(line.level)
        at = f"{line.at:%Y-%m-%d %H:%M:%S}.{line.at.microsecond // 1000:03d}"
        print_line(f"{at}  run {chunk.claim.number}  {level:<7}  {printable(line.text)}")


def _fields(chunk: LogChunk, line: LogLine) -> dict[str, Any]:
    return {
        "at": line.at,
        "run": chunk.claim.number,
        "level": logging.getLevelName(line.level),
        "text": line.text,
    }
