"""``python -m benchmarks --against COMMIT``: what the hot path has lost or won since a commit.

The commit is checked out into a temporary git worktree. Its package and that of the working tree
are measured by the same code, each in processes of its own that import nothing of the other, in
rounds that take turns and change who comes first: no-op jobs drained by one worker, and jobs stored
by ``enqueue_many`` and one by one. The figures are medians of five rounds.
"""

from __future__ import annotations

import compileall
import functools
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import windlass
from benchmarks.child import run, sources
from benchmarks.drain import SLOTS, rate
from benchmarks.enqueue import produce
from benchmarks.figure import Figure, Target
from benchmarks.stage import Listener, Rounds, Stage
from benchmarks.worker import App, make_calls, store

__all__ = ["UnknownCommit", "checked_out", "located", "measure", "put"]

ROOT = Path(__file__).resolve().parents[1]
SINGLES = 50
LEAST = 0.95
"""Nothing may lose more than five parts in a hundred."""

Way = Callable[[], Awaitable[float]]


class UnknownCommit(Exception):
    """There is no such commit here."""


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The files of a commit, as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="windlass-against-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            # Nobody's first round is to pay for this.
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
    """The working tree against a commit that was checked out to ``tree``."""
    sizes, place, listener = stage
    answers: dict[str, list[dict[str, float]]] = {"before": [], "now": []}

    async def drain() -> float:
        with place.scratch() as url:
            await run(put, url=url, jobs=sizes.against_jobs)
            place.settle(url)
            return await rate(url, sizes.against_jobs, workers=1, slots=SLOTS)

    async def enqueue(side: str) -> float:
        with place.scratch() as url:
            answer = await run(produce, url=url, jobs=sizes.against_jobs, singles=SINGLES)
        answers[side].append(answer)
        return float(answer["bulk"])

    sides = {"before": tree / "src", "now": ROOT / "src"}
    ways: dict[str, Way] = {}
    for side, source in sides.items():
        with sources(source):
            await _check(source)
        ways[f"drain {side}"] = functools.partial(_within, source, drain)
        ways[f"enqueue {side}"] = functools.partial(
            _within, source, functools.partial(enqueue, side)
        )
    rounds = await _in_turn(sizes.against_rounds, ways, listener)
    burst = Rounds({side: [one["at_once"] for one in told] for side, told in answers.items()})
    return [
        _figure("drain", "drain, one worker process", rounds, "drain ", commit),
        _figure("enqueue", "enqueue_many", rounds, "enqueue ", commit),
        _figure("at_once", "single enqueues at once", burst, "", commit),
    ]


async def _within(source: Path, way: Way) -> float:
    with sources(source):
        return await way()


async def _in_turn(count: int, ways: Mapping[str, Way], listener: Listener) -> Rounds:
    """Every way ``count`` times; who came last comes first in the next round."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(1, count + 1):
        for name in [*ways] if number % 2 else reversed([*ways]):
            listener.step(f"{name}, round {number} of {count}")
            samples[name].append(await ways[name]())
    return Rounds(samples)


def _figure(name: str, title: str, rounds: Rounds, what: str, commit: str) -> Figure:
    now, before = f"{what}now", f"{what}before"
    return Figure(
        name=f"against_{name}",
        title=f"{title}, against {commit}",
        measured=rounds[now],
        unit="jobs/s",
        yardstick=rounds[before],
        yardstick_name=commit,
        target=Target("at least", LEAST, "ratio"),
        note=f"now {rounds.spread(now)}; before {rounds.spread(before)}",
    )


async def _check(source: Path) -> None:
    found = await run(located)
    if not Path(found).is_relative_to(source):
        raise RuntimeError(f"{found} would be measured, which is not in {source}")


# --- in processes of their own ----------------------------------------------------------------


def located() -> str:
    """Which package is measured here."""
    return str(Path(str(windlass.__file__)).resolve())


async def put(url: str, jobs: int) -> str:
    """Store jobs that do nothing."""
    app = App(url)
    async with app.windlass:
        await store(app.windlass, make_calls(app.noop, jobs))
    return "done"
