"""Which job systems are compared, in which version, on which store, and what each one promises."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.place import Backend

__all__ = ["CATALOGUE", "SAFE", "Entry", "UnknownName", "chosen"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A job system on one store."""

    library: str
    """Its module in `benchmarks.peers.systems`, and its environment's name."""
    title: str
    backend: Backend
    requirements: tuple[str, ...]
    """The packages that pip installs into its environment. Their versions are pinned."""
    packages: tuple[str, ...]
    """Distributions whose versions are printed."""
    delivery: str
    caveat: str
    """The limits of the system that a reader of its figures must know."""
    module: str = ""

    @property
    def name(self) -> str:
        """Return what ``--only`` calls it."""
        return f"{self.library}-{self.backend}"

    @property
    def system(self) -> str:
        """Return the module that its processes import."""
        return self.module or f"benchmarks.peers.systems.{self.library}"


class UnknownName(Exception):
    """``--only`` names something that is not in the catalogue."""


SAFE = "at least once"
# redis-py's installation page: "For faster performance, install redis with hiredis support".
_HIREDIS, _UVLOOP = "hiredis==3.5.0", "uvloop==0.23.0"


def _windlass(backend: Backend) -> Entry:
    return Entry(
        library="windlass",
        title="Windlass",
        backend=backend,
        requirements=("--editable", ".[postgres,redis,fast]"),
        packages=("windlass",),
        delivery=SAFE,
        caveat=(
            "a killed worker is noticed after 2 s on one machine, 30 s across machines; "
            "then its jobs are retried"
        ),
    )


def _huey(backend: Backend) -> Entry:
    return Entry(
        library="huey",
        title="Huey",
        backend=backend,
        requirements=("huey==3.5.4", "redis==8.1.0", _HIREDIS),
        packages=("huey",),
        delivery="at most once",
        caveat="jobs of a killed worker are lost; no bulk call; threads",
    )


def _saq(backend: Backend) -> Entry:
    return Entry(
        library="saq",
        title="SAQ",
        backend=backend,
        requirements=("saq[redis,postgres,hiredis]==0.26.4", "psycopg[binary]==3.3.8", _UVLOOP),
        packages=("saq",),
        delivery=SAFE,
        caveat="with retries set per job; no bulk call, 20 calls at once instead",
    )


CATALOGUE: tuple[Entry, ...] = (
    _windlass("sqlite"),
    _huey("sqlite"),
    _windlass("redis"),
    Entry(
        library="celery",
        title="Celery",
        backend="redis",
        requirements=("celery[redis]==5.7.0", _HIREDIS),
        packages=("celery", "kombu"),
        delivery=SAFE,
        caveat="with acks_late; jobs of a killed worker wait for the visibility timeout, one hour; "
        "no bulk call, a group instead; a worker process is a parent and a child",
    ),
    Entry(
        library="rq",
        title="RQ",
        backend="redis",
        requirements=("rq==2.12.0", _HIREDIS),
        packages=("rq",),
        delivery=SAFE,
        caveat="with retries set per job; forks for each job and runs one at a time",
    ),
    Entry(
        library="dramatiq",
        title="Dramatiq",
        backend="redis",
        requirements=("dramatiq[redis]==2.2.1", _HIREDIS),
        packages=("dramatiq",),
        delivery=SAFE,
        caveat="no bulk call; threads",
    ),
    _huey("redis"),
    Entry(
        library="arq",
        title="arq",
        backend="redis",
        requirements=("arq==0.28.0", _UVLOOP),
        packages=("arq",),
        delivery=SAFE,
        caveat="polls every 0.5 s; no bulk call, 50 calls at once instead",
    ),
    _saq("redis"),
    Entry(
        library="taskiq",
        title="Taskiq",
        backend="redis",
        requirements=("taskiq==0.13.0", "taskiq-redis==1.2.4", _HIREDIS, _UVLOOP),
        packages=("taskiq", "taskiq-redis"),
        delivery=SAFE,
        caveat="with Redis streams; no bulk call, 50 calls at once instead; jobs have no state",
    ),
    _windlass("postgres"),
    _saq("postgres"),
    Entry(
        library="procrastinate",
        title="Procrastinate",
        backend="postgres",
        requirements=("procrastinate==3.10.0", "psycopg[binary]==3.3.8", _UVLOOP),
        packages=("procrastinate",),
        delivery=SAFE,
        caveat="with a periodic task of one's own that retries stalled jobs",
    ),
    Entry(
        library="pgqueuer",
        title="pgqueuer",
        backend="postgres",
        # Its command ``pgq run`` does not start with a newer typer.
        requirements=("pgqueuer==1.6.0", "asyncpg==0.32.0", "typer==0.25.1", _UVLOOP),
        packages=("pgqueuer",),
        delivery=SAFE,
        caveat="batches of 200; a job that raises is deleted by default",
    ),
)


def chosen(only: str | None, catalogue: Sequence[Entry] = CATALOGUE) -> list[Entry]:
    """Return the entries that ``only`` names, by library or by full name; all for None."""
    if only is None:
        return list(catalogue)
    names = only.split(",")
    known = [name for entry in catalogue for name in (entry.library, entry.name)]
    if unknown := [name for name in names if name not in known]:
        raise UnknownName(f"{unknown[0]!r} is none of {', '.join(dict.fromkeys(known))}")
    return [entry for entry in catalogue if entry.library in names or entry.name in names]
