"""``python -m benchmarks.peers``, or ``make bench-peers``: Windlass beside other job systems.

All systems are measured by one harness, in one run, on one machine, in rounds that take turns. Run
it on a quiet machine: the load is printed with the figures.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from rich.console import Console

from benchmarks.peers.catalogue import CATALOGUE, Entry, UnknownName, chosen
from benchmarks.peers.environments import InstallFailed, python_of
from benchmarks.peers.measurement import STEPS, Subject
from benchmarks.peers.picture import draw
from benchmarks.peers.report import Row, as_json, as_markdown, show
from benchmarks.peers.sizes import FULL, QUICK, TINY, PeerSizes
from benchmarks.place import open_place
from benchmarks.progress import Display
from benchmarks.report import machine

__all__ = ["main", "measure"]

_FILE = click.Path(dir_okay=False, path_type=Path)
_NAMES = ", ".join(dict.fromkeys(entry.library for entry in CATALOGUE))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", metavar="NAMES", help=f"Some of them: {_NAMES}; or huey-redis, saq-redis …")
@click.option("--quick", is_flag=True, help="Two rounds of smaller sizes, about ten minutes.")
@click.option("--tiny", is_flag=True, hidden=True, help="To see that it works at all.")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON with all samples.")
@click.option("--markdown", type=_FILE, help="Also write the table for a page to this file.")
@click.option("--picture", type=_FILE, help="Also write the figures to this file, as an SVG.")
@click.option("--here", is_flag=True, help="Use this environment; make none for each system.")
def main(
    *,
    only: str | None,
    quick: bool,
    tiny: bool,
    as_json_: bool,
    markdown: Path | None,
    picture: Path | None,
    here: bool,
) -> None:
    """Measure Windlass beside other job systems."""
    if sys.platform != "linux":
        raise click.ClickException("the figures read /proc, so they are measured on Linux")
    try:
        entries = chosen(only)
    except UnknownName as error:
        raise click.BadParameter(str(error), param_hint="--only") from error
    sizes = TINY if tiny else QUICK if quick else FULL
    talk = Console(stderr=True, highlight=False)
    where = machine()
    try:
        pythons = [Path(sys.executable) if here else _python(entry, talk) for entry in entries]
    except InstallFailed as error:
        raise click.ClickException(str(error)) from error
    rows, stores = measure(entries, pythons, sizes, talk)
    where |= {"load at the end": machine()["load"], **stores}
    if picture is not None:
        picture.write_text(draw(rows, where, sizes.name), encoding="utf-8")
    if markdown is not None:
        markdown.write_text(as_markdown(rows, where, sizes.name), encoding="utf-8")
    if as_json_:
        click.echo(as_json(rows, where, sizes.name))
    else:
        show(rows, where | {"sizes": sizes.name}, _wide(Console(highlight=False)))
    if any(row.samples.error for row in rows):
        raise SystemExit(1)


def _python(entry: Entry, console: Console) -> Path:
    with console.status(f"preparing the environment of {entry.title}"):
        return python_of(entry)


def _wide(console: Console) -> Console:
    if not console.is_terminal:
        console.width = 160
    return console


def measure(
    entries: Sequence[Entry], pythons: Sequence[Path], sizes: PeerSizes, console: Console
) -> tuple[list[Row], dict[str, str]]:
    """Measure entries in turns; return their rows, and the versions of the stores."""
    with _subjects(entries, pythons, sizes) as (subjects, stores):
        asyncio.run(_in_turns(subjects, sizes.rounds, console))
    return [Row(subject.entry, subject.samples) for subject in subjects], stores


@contextmanager
def _subjects(
    entries: Sequence[Entry], pythons: Sequence[Path], sizes: PeerSizes
) -> Iterator[tuple[list[Subject], dict[str, str]]]:
    """Start the servers that the entries need, and stop them at the end."""
    with ExitStack() as stack:
        places = {
            backend: stack.enter_context(open_place(backend))
            for backend in dict.fromkeys(entry.backend for entry in entries)
        }
        stores: dict[str, str] = {place.backend: place.version for place in places.values()}
        yield (
            [
                Subject(entry, python, places[entry.backend], sizes)
                for entry, python in zip(entries, pythons, strict=True)
            ],
            stores,
        )


async def _in_turns(subjects: Sequence[Subject], rounds: int, console: Console) -> None:
    """Take every step with all systems in turn, round by round.

    The same figure of all systems is measured within minutes, so that a slow hour falls on all of
    them. Every other round begins with the last system.
    """
    done = 0
    with Display(console, rounds * len(subjects) * len(STEPS)) as display:
        for number, step in itertools.product(range(rounds), STEPS):
            for subject in subjects if number % 2 == 0 else reversed(subjects):
                display.begin(f"{subject.entry.name}: {step}, round {number + 1}", done)
                done += 1
                await _take(subject, step)


async def _take(subject: Subject, step: str) -> None:
    """Take one step. A system that fails is left out from then on; the others go on."""
    if subject.samples.error:
        return
    try:
        await STEPS[step](subject)
    except Exception as error:  # noqa: BLE001 -- one system must not end an hour of the others
        subject.samples.error = f"{step}: {type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
