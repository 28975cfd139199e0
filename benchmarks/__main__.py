"""``python -m benchmarks``: every figure Windlass promises, measured here and now.

Yardstick and Windlass take turns within one run, so that a slow minute falls on both; the figures
are medians. Run it on a quiet machine, or compare only the ratios.
"""

from __future__ import annotations

import asyncio
import compileall
import functools
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import against as comparing
from benchmarks.figure import Figure
from benchmarks.figures import (
    closed,
    drain,
    flat,
    hosts,
    imports,
    lanes,
    latency,
    limited,
    memory,
    misfits,
    rates,
    sleeping,
    slots,
    warm,
)
from benchmarks.figures.dashboard import actions, lists, pages, streams
from benchmarks.figures.flows import crowd, large, shapes, waiting
from benchmarks.figures.server import empty_claim, idle_workers, profile, retention
from benchmarks.figures.storing import bulk, enqueue, lone
from benchmarks.place import BACKENDS, Backend, Place, open_place
from benchmarks.profile_page import write_page
from benchmarks.progress import Display
from benchmarks.report import as_json, as_run, machine, show
from benchmarks.sizes import FULL, QUICK, TINY, Sizes
from benchmarks.stage import Stage

Runs = list[dict[str, Any]]
Measures = Mapping[str, Callable[[Stage], Awaitable[list[Figure]]]]

MEASURES: Measures = {
    "drain": drain.measure,
    "slots": slots.measure,
    "profile": profile.measure,
    "enqueue": enqueue.measure,
    "bulk": bulk.measure,
    "latency": latency.measure,
    "warm": warm.measure,
    "lone": lone.measure,
    "flat": flat.measure,
    "lanes": lanes.measure,
    "limited": limited.measure,
    "flows": shapes.measure,
    "fanin": large.measure,
    "crowd": crowd.measure,
    "cascade": waiting.measure_cascade,
    "resume": waiting.measure_resume,
    "closed": closed.measure,
    "idle_workers": idle_workers.measure,
    "empty_claim": empty_claim.measure,
    "retention": retention.measure,
    "rates": rates.measure,
    "misfits": misfits.measure,
    "sleeping": sleeping.measure,
    "memory": memory.measure,
    "endurance": drain.measure_endurance,
    "pages": pages.measure,
    "actions": actions.measure,
    "lists": lists.measure,
    "streams": streams.measure,
    "hosts": hosts.measure,
    "imports": imports.measure,
}
BY_BACKEND: dict[Backend, tuple[str, ...]] = {
    "sqlite": (
        "drain",
        "slots",
        "profile",
        "enqueue",
        "latency",
        "warm",
        "lone",
        "flat",
        "lanes",
        "limited",
        "flows",
        "fanin",
        "cascade",
        "resume",
        "closed",
        "rates",
        "misfits",
        "sleeping",
        "memory",
        "pages",
        "actions",
        "lists",
        "streams",
        "hosts",
        "imports",
    ),
    "postgres": (
        *(
            "drain",
            "slots",
            "profile",
            "latency",
            "warm",
            "lone",
            "flat",
            "lanes",
            "limited",
            "flows",
            "fanin",
            "crowd",
            "cascade",
            "resume",
            "closed",
            "rates",
            "misfits",
            "sleeping",
            "endurance",
            "pages",
            "actions",
        ),
        "lists",
        "streams",
        "bulk",
        "idle_workers",
        "retention",
    ),
    "redis": (
        "drain",
        "slots",
        "profile",
        "latency",
        "warm",
        "lone",
        "flat",
        "lanes",
        "limited",
        "flows",
        "fanin",
        "cascade",
        "resume",
        "closed",
        "rates",
        "misfits",
        "sleeping",
        "pages",
        "actions",
        "lists",
        "streams",
        "idle_workers",
        "empty_claim",
        "retention",
    ),
}
"""What is promised about each."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", metavar="NAMES", help=f"Some of them: {','.join(MEASURES)}.")
@click.option("--backend", type=click.Choice(BACKENDS), help="One of them; all if left out.")
@click.option("--quick", is_flag=True, help="Smaller sizes, a few minutes.")
@click.option("--tiny", is_flag=True, hidden=True, help="To see that it works at all.")
@click.option("--json", "as_json_", is_flag=True, help="For machines, on standard output.")
@click.option(
    "--page", type=click.Path(path_type=Path), help="Put the table and picture of profile there."
)
@click.option("--against", metavar="COMMIT", help="Only drain and enqueue, at COMMIT and now.")
def main(
    *,
    only: str | None,
    backend: Backend | None,
    quick: bool,
    tiny: bool,
    as_json_: bool,
    page: Path | None,
    against: str | None,
) -> None:
    """Every figure Windlass promises, measured here and now."""
    if sys.platform != "linux":
        raise click.ClickException("the figures read /proc, so they are measured on Linux")
    if page is not None and only != "profile":
        raise click.UsageError("--page is for --only profile")
    if only is not None and against is not None:
        raise click.UsageError("--against measures drain and enqueue: leave --only out")
    names = list(MEASURES) if only is None else only.split(",")
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(MEASURES)}")
    sizes = TINY if tiny else QUICK if quick else FULL
    backends = BACKENDS if backend is None else (backend,)
    # Where Python may not write what it compiles, every process would compile it again.
    compileall.compile_dir(comparing.ROOT / "src", quiet=2)
    if against is None:
        by_backend = {one: [name for name in names if name in BY_BACKEND[one]] for one in backends}
        measures = {one: _measures(chosen) for one, chosen in by_backend.items()}
        runs = _run(sizes, measures, as_json_)
        if page is not None:
            write_page(page, runs)
        return
    try:
        with comparing.checked_out(against) as tree:
            measure = functools.partial(comparing.measure, tree=tree, commit=against)
            _run(sizes, {one: {f"against {against}": measure} for one in backends}, as_json_)
    except comparing.UnknownCommit as error:
        raise click.BadParameter(str(error), param_hint="--against") from error


def _measures(names: list[str]) -> Measures:
    return {name: MEASURES[name] for name in names}


def _run(sizes: Sizes, by_backend: Mapping[Backend, Measures], as_json_: bool) -> Runs:  # noqa: FBT001
    talk = Console(stderr=True, highlight=False)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    runs: Runs = []
    for backend, measures in by_backend.items():
        if not measures:
            continue
        where = machine()
        with open_place(backend) as place:
            where["storage"] = place.version
            figures = asyncio.run(_measure(measures, sizes, place, talk))
        runs.append(as_run(figures, where, sizes.name))
        if not as_json_:
            show(figures, where | {"sizes": sizes.name}, console)
    if as_json_:
        click.echo(as_json(runs))
    return runs


async def _measure(
    measures: Measures, sizes: Sizes, place: Place, console: Console
) -> list[Figure]:
    figures: list[Figure] = []
    with Display(console, len(measures), place.backend) as display:
        for done, (name, measure) in enumerate(measures.items()):
            display.begin(name, done)
            figures += await measure(Stage(sizes, place, display))
    return figures


if __name__ == "__main__":
    main()
