"""Any number of seeds: ``python -m tests.simulation --seeds 1000``; one: ``--seed 42``."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from tests.simulation.framework.loop import TraceLine
from tests.simulation.seeds import (
    BITE,
    STORES,
    Bite,
    reproduce,
    run_bite,
    run_flows,
    run_schedules,
)
from tests.simulation.world.schedules import simulate_schedules
from tests.simulation.world.world import StoreName, simulate

ENOUGH = 10
"""Seeds that fail before the rest is not worth the wait."""

PAUSE = 30.0
"""Seconds between two lines about the progress."""

SHARE = 20
"""One of this many seeds is run in a world with flows, too. That takes three times as long."""


def bites(
    stores: tuple[StoreName, ...], first: int, seeds: int
) -> Iterator[tuple[StoreName, int, int]]:
    for start in range(first, first + seeds, BITE):
        for store in stores:
            yield store, start, min(start + BITE, first + seeds)


def plan(
    stores: tuple[StoreName, ...], first: int, seeds: int, *, schedules: bool, flows: bool
) -> Iterator[tuple[Callable[..., Bite], tuple[StoreName, int, int]]]:
    """Yield what to run. Unless one kind of world is asked for, some worlds have flows."""
    run = run_schedules if schedules else run_flows if flows else run_bite
    yield from ((run, bite) for bite in bites(stores, first, seeds))
    if run is run_bite:
        yield from ((run_flows, bite) for bite in bites(stores, first, seeds // SHARE))


def show_one(seed: int, store: StoreName, *, schedules: bool, flows: bool) -> int:
    """Tell the whole story of one seed."""
    chronicle: list[TraceLine] = []
    run = simulate_schedules if schedules else partial(simulate, flows=flows)
    try:
        report = run(seed, store, chronicle=chronicle)
    except Exception:  # noqa: BLE001
        failure = traceback.format_exc(limit=0)
    else:
        failure = ""
        click.echo(f"{report.counts}")
    for at, process, line in chronicle:
        click.echo(f"{at:10.4f} {process:12} {line}")
    click.echo(failure or f"seed {seed} on {store}: every promise was kept")
    return 1 if failure else 0


def run_many(
    stores: tuple[StoreName, ...],
    first: int,
    seeds: int,
    workers: int,
    *,
    schedules: bool,
    flows: bool,
) -> int:
    console = Console()
    told = _Telling(console)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    began = time.monotonic()
    done: list[Bite] = []
    failed = 0
    # Fresh interpreters: what a parent has in its memory must not matter.
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool,
    ):
        work = [*plan(stores, first, seeds, schedules=schedules, flows=flows)]
        total = sum(last - begin for _, (_, begin, last) in work)
        bar = progress.add_task("seeds", total=total)
        futures = [pool.submit(run, *bite) for run, bite in work]
        for future in futures:
            bite = future.result()
            done.append(bite)
            progress.advance(bar, bite.seeds)
            told.advance(bite.seeds, total)
            for seed, failure in bite.failures:
                failed += 1
                console.print(f"[red]seed {seed} on {bite.store}[/red]: {failure}", highlight=False)
                again = reproduce(seed, bite.store, schedules=schedules, flows=bite.flows)
                console.print(f"  again: {again}", highlight=False)
            if failed >= ENOUGH:
                for other in futures:
                    other.cancel()
                break
    console.print(table(done, time.monotonic() - began))
    return 1 if failed else 0


class _Telling:
    """A line now and then where there is no terminal for a bar."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._told = time.monotonic()
        self._done = 0

    def advance(self, seeds: int, total: int) -> None:
        self._done += seeds
        now = time.monotonic()
        if self._console.is_terminal or now - self._told < PAUSE:
            return
        self._told = now
        # Too early: worlds with flows come last, and take longer.
        left = (now - self._began) / self._done * (total - self._done)
        self._console.print(
            f"{self._done} of {total} seeds, about {left:.0f} s more", highlight=False
        )


def table(done: list[Bite], seconds: float) -> Table:
    ran = sum(bite.seeds for bite in done)
    shown = Table(title=f"{ran} seeds in {seconds:.0f} s, {ran / seconds:.1f} seeds/s")
    for heading in ("store", "seeds", "failed", "virtual hours", "jobs", "what happened"):
        shown.add_column(heading)
    for store in STORES:
        mine = [bite for bite in done if bite.store == store]
        if mine:
            counts = sum((bite.counts for bite in mine), Counter[str]())
            told = ", ".join(f"{count} {what}" for what, count in counts.most_common(12))
            shown.add_row(
                store,
                str(sum(bite.seeds for bite in mine)),
                str(sum(len(bite.failures) for bite in mine)),
                f"{sum(bite.virtual for bite in mine) / 3600:.1f}",
                str(sum(bite.jobs for bite in mine)),
                told,
            )
    return shown


@click.command()
@click.option("--seeds", default=1000, show_default=True, help="How many, for each store.")
@click.option("--from", "first", default=0, show_default=True, help="The first one.")
@click.option("--store", type=click.Choice(STORES), help="Only this store; else both.")
@click.option("--seed", type=int, help="Only this one, and tell everything.")
@click.option("--processes", default=os.cpu_count() or 1, show_default="all cores")
@click.option("--schedules", is_flag=True, help="Worlds of schedulers, a thousand slots each.")
@click.option("--flows", is_flag=True, help="Only worlds whose people start flows, too.")
def main(
    seeds: int,
    first: int,
    store: StoreName | None,
    seed: int | None,
    processes: int,
    *,
    schedules: bool,
    flows: bool,
) -> None:
    """Run simulated worlds and hold them to their promises."""
    if seed is not None:
        sys.exit(show_one(seed, store or "memory", schedules=schedules, flows=flows))
    stores = (store,) if store else STORES
    sys.exit(run_many(stores, first, seeds, processes, schedules=schedules, flows=flows))


if __name__ == "__main__":
    main()
