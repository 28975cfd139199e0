"""``windlass bench``: measure throughput and latency of this machine and its storage."""

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

from windlass._cli.options.groups import examples

if TYPE_CHECKING:
    from rich.console import Console

    from windlass._cli.bench.measurement import BenchResult

__all__ = ["bench"]


@click.command(
    epilog=examples(
        "windlass bench",
        "windlass bench --url postgresql://localhost/bench --jobs 50000 --json",
    )
)
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
    help="Number of jobs to enqueue and run.",
)
@click.option("--force", is_flag=True, help="Measure a storage that has other jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def bench(*, url: str | None, jobs: int, force: bool, as_json: bool) -> int:
    """Measure how fast this machine enqueues and runs jobs and wakes an idle worker.

    The jobs do nothing, so the figures are the cost of Windlass itself. Your settings (WINDLASS_…
    variables) apply. With --url, the jobs use the queue windlass-bench and are deleted when they
    finish.
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
    """Yield the URL that was given, or a temporary file that is removed afterwards."""
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
    table.add_column("measured")
    table.add_column("figure", justify="right")
    table.add_column("conditions")
    between = "between two processes" if figures.across_processes else "within this process"
    rows = (
        ("enqueue_many", f"{figures.enqueue_many:,.0f} jobs/s", f"{jobs:,} jobs, 1,000 a call"),
        ("single enqueue", _ms(figures.enqueue_p50_ms), "median, one after the other"),
        ("", _ms(figures.enqueue_p99_ms), "99th percentile"),
        ("run jobs", f"{figures.drain:,.0f} jobs/s", f"one process, 200 at once, on {loop}"),
        ("start on an idle worker", _ms(figures.pickup_p50_ms), f"median, {between}"),
        ("", _ms(figures.pickup_worst_ms), "slowest"),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.2f} ms" if milliseconds < 10 else f"{milliseconds:.1f} ms"
