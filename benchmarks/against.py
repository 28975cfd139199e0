"""``python -m benchmarks --against COMMIT``: what the hot path has lost or won since a commit.

The commit is checked out into a temporary git worktree. Its package and that of the working tree
are measured by the same code, each in processes of its own that import nothing of the other, in
rounds that take turns and change who comes first: no-op jobs drained by one worker, with the
processor time that worker and server spend on one job; the same under limits, as a share of the
plain drain of the same commit; jobs stored by ``enqueue_many``, a thousand single ones at once, and
one at a time. The figures are medians of nine rounds.
"""

from __future__ import annotations

import compileall
import functools
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks import plain
from benchmarks.child import child, run, sources
from benchmarks.figure import Figure, Target, Unit
from benchmarks.limits import LIMITED, SLOTS
from benchmarks.place import Place
from benchmarks.stage import Listener, Rounds, Stage

__all__ = ["ROOT", "UnknownCommit", "checked_out", "measure"]

ROOT = Path(__file__).resolve().parents[1]
LEAST = Target("at least", 0.95, "ratio")
"""No rate may lose more than five parts in a hundred."""
MOST = Target("at most", 1.03, "ratio")
"""No job may cost more than three parts in a hundred more."""

Answer = dict[str, float]
Way = Callable[[], Awaitable[Answer]]


class UnknownCommit(Exception):
    """There is no such commit here."""


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check out the files of a commit, as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="windlass-against-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            # As the working tree is, before its first round.
            compileall.compile_dir(tree / "src", quiet=2)
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> None:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words],  # noqa: S607 -- whichever git there is
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UnknownCommit(done.stderr.strip() or f"git {words[0]} failed")


async def measure(stage: Stage, tree: Path, commit: str) -> list[Figure]:
    """Measure the working tree against a commit that was checked out to ``tree``."""
    sizes, place, listener = stage
    jobs = sizes.against_jobs
    works: dict[str, Way] = {
        "drain": functools.partial(_drain, place, jobs),
        **{kind: functools.partial(_limited, place, jobs, kind) for kind in LIMITED},
        "enqueue": functools.partial(_enqueue, place, jobs, sizes.against_lone),
    }
    ways: dict[tuple[str, str], Way] = {}
    for side, source in {"before": tree / "src", "now": ROOT / "src"}.items():
        with sources(source):
            await _check(source)
        for work, way in works.items():
            ways[side, work] = functools.partial(_within, source, way)
    rounds = await _in_turn(sizes.against_rounds, ways, listener)
    parts = () if place.backend == "sqlite" else ("worker", "server")
    return [
        _figure("drain", "drain, one worker process", rounds, commit),
        _figure("processor", "processor time of a job", rounds, commit, unit="µs", target=MOST),
        *(
            _figure(part, f"of it in the {part}", rounds, commit, unit="µs", target=None)
            for part in parts
        ),
        _figure("bulk", "enqueue_many", rounds, commit),
        _figure("at_once", "single enqueues at once", rounds, commit),
        _figure("lone", "a lone enqueue", rounds, commit),
        *(_share(kind, rounds, commit) for kind in LIMITED),
    ]


async def _drain(place: Place, jobs: int, kind: str = "plain") -> Answer:
    with place.scratch() as url:
        await run(plain.put, url=url, jobs=jobs, kind=kind)
        place.settle(url)
        async with child(plain.drain, url=url, jobs=jobs, slots=SLOTS, kind=kind) as worker:
            await worker.hear()
            before = place.processor_seconds()
            told = await worker.ask("start")
            server = place.processor_seconds() - before
    if told["runs"] != jobs:
        raise AssertionError(f"{told['runs']} runs of {jobs} jobs")
    return {
        "drain": jobs / told["seconds"],
        "processor": (told["processor"] + server) / jobs * 1e6,
        "worker": told["processor"] / jobs * 1e6,
        "server": server / jobs * 1e6,
    }


async def _limited(place: Place, jobs: int, kind: str) -> Answer:
    return {kind: (await _drain(place, jobs, kind))["drain"]}


async def _enqueue(place: Place, jobs: int, lone: int) -> Answer:
    with place.scratch() as url:
        return dict(await run(plain.produce, url=url, jobs=jobs, lone=lone))


async def _within(source: Path, way: Way) -> Answer:
    with sources(source):
        return await way()


async def _in_turn(
    count: int, ways: Mapping[tuple[str, str], Way], listener: Listener
) -> dict[str, Rounds]:
    """Every way ``count`` times; who came last comes first in the next round."""
    samples: dict[str, dict[str, list[float]]] = {}
    for number in range(1, count + 1):
        for side, work in [*ways] if number % 2 else reversed([*ways]):
            listener.step(f"{work} {side}, round {number} of {count}")
            for name, value in (await ways[side, work]()).items():
                samples.setdefault(name, {}).setdefault(side, []).append(value)
    return {name: Rounds(sides) for name, sides in samples.items()}


def _figure(
    name: str,
    title: str,
    measured: Mapping[str, Rounds],
    commit: str,
    *,
    unit: Unit = "jobs/s",
    target: Target | None = LEAST,
) -> Figure:
    rounds = measured[name]
    return Figure(
        name=f"against_{name}",
        title=f"{title}, against {commit}",
        measured=rounds["now"],
        unit=unit,
        yardstick=rounds["before"],
        yardstick_name=commit,
        target=target,
        note=f"now {rounds.spread('now')}; before {rounds.spread('before')}",
    )


def _share(kind: str, measured: Mapping[str, Rounds], commit: str) -> Figure:
    """Say what is left of the plain drain under a limit, now and before."""
    drains, rounds = measured["drain"], measured[kind]
    return Figure(
        name=f"against_{kind}",
        title=f"drain, {LIMITED[kind]}, against {commit}",
        measured=100 * rounds["now"] / drains["now"],
        unit="% of plain",
        yardstick=100 * rounds["before"] / drains["before"],
        yardstick_name=commit,
        note=f"{rounds['now']:,.0f} jobs/s now, {rounds['before']:,.0f} before",
    )


async def _check(source: Path) -> None:
    found = await run(plain.located)
    if not Path(found).is_relative_to(source):
        raise RuntimeError(f"{found} would be measured, which is not in {source}")
