"""``windlass bench``: what your machine and your storage give."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

if TYPE_CHECKING:
    from rich.console import Console

    from windlass._cli.bench.measurement import BenchResult

__all__ = ["bench"]


@click.command()
@click.option(
    "--url",
    metavar="URL",
    help="Measure this storage. Default: a SQLite file in the temporary folder (TMPDIR).",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1, max=10_000_000),
    default=20_000,
    show_default=True,
    help="How many jobs to store and run.",
)
@click.option("--force", is_flag=True, help="Measure although the storage already holds jobs.")
@click.option("--json", "as_json", is_flag=True, help="For machines, on standard output.")
def bench(*, url: str | None, jobs: int, force: bool, as_json: bool) -> int:
    """Measure it on this machine: storing jobs, running them, waking an idle worker.

    The jobs do nothing, so the figures are what Windlass itself takes. Your own settings
    (WINDLASS_… variables) count. On a storage that you name, jobs wait in the queue
    windlass-bench and are deleted as they finish.
    """
    from rich.console import Console

    from windlass._cli.bench.measurement import BenchSizes, measure
    from windlass._cli.bench.worker import fastest_loop

    talk = Console(stderr=True, highlight=False)
    factory, loop = fastest_loop()
    with _storage(url) as place, talk.status("starting") as progress:

        def say(what: str) -> None:
            progress.update(what)
            if not talk.is_terminal:
                talk.print(what)

        with asyncio.Runner(loop_factory=factory) as runner:
            figures = runner.run(
                measure(place, BenchSizes(jobs=jobs), say, keep=url is None, force=force)
            )
    if as_json:
        _print_json(figures, jobs, loop)
    else:
        _print_table(figures, jobs, loop, Console(highlight=False))
    return 0


@contextmanager
def _storage(url: str | None) -> Iterator[str]:
    """The one that was named, or a scratch file that is removed afterwards."""
    if url is not None:
        yield url
        return
    folder = tempfile.mkdtemp(prefix="windlass-bench-")
    try:
        yield f"sqlite:///{quote(str(Path(folder) / 'jobs.db'))}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _print_json(figures: BenchResult, jobs: int, loop: str) -> None:
    import msgspec

    said = msgspec.to_builtins(figures) | {"jobs": jobs, "loop": loop}
    click.echo(msgspec.json.format(msgspec.json.encode(said), indent=2).decode())


def _print_table(figures: BenchResult, jobs: int, loop: str, console: Console) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.ROUNDED, title=figures.storage, title_style="dim", title_justify="left")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("how")
    between = "between two processes" if figures.across_processes else "within this process"
    rows = (
        ("enqueue_many", f"{figures.enqueue_many:,.0f} jobs/s", f"{jobs:,} jobs, 1,000 a call"),
        ("a single enqueue", _ms(figures.enqueue_p50_ms), "the median, one after the other"),
        ("", _ms(figures.enqueue_p99_ms), "99 of 100 are faster"),
        ("running them", f"{figures.drain:,.0f} jobs/s", f"one process, 200 at once, on {loop}"),
        ("picking up when idle", _ms(figures.pickup_p50_ms), f"the median, {between}"),
        ("", _ms(figures.pickup_worst_ms), "the slowest"),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.2f} ms" if milliseconds < 10 else f"{milliseconds:.1f} ms"
