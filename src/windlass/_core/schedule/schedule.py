"""Schedules: what is asked for, what is known of each, and what follows when one is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec

from windlass._core.job.job import JobId, LimitUse, NewJob
from windlass._core.job.state import State
from windlass._core.schedule.rules import Every, Manual, Once, Rule, latest_slots, next_slot
from windlass._core.values.instants import aware, duration, from_us, to_us
from windlass._core.values.names import shown
from windlass.errors import InvalidArgument

__all__ = [
    "MISSED_AFTER",
    "RUNS_KEPT",
    "DueFirings",
    "Missed",
    "Overlap",
    "RunsOn",
    "Schedule",
    "ScheduleRun",
    "ScheduleState",
    "TriggerAnswer",
    "WorkerRun",
    "due_firings",
    "first_slot",
    "job_of_schedule",
    "job_of_slot",
    "merge_plans",
    "next_slots",
    "planned_slots",
    "read_state",
    "slot_of",
    "trim_runs",
    "turn_of",
]

MISSED_AFTER = timedelta(seconds=60)
"""A slot that is later than this was missed. What is less late is fired as if nothing had been:
another process takes over from a dead one in less."""
RUNS_KEPT = 20
"""Runs a schedule remembers."""
_MOST = 10_000
_REMEMBERED = 100
_MOST_ACTIVE = 1_000
"""Each is remembered while it is active."""
_WORKERS = 100  # whose last run is remembered
_US = timedelta(microseconds=1)
_NO_VERDICT = (State.CANCELLED, State.DISCARDED)
_VERSION = "8"

Overlap = Literal["skip", "queue", "allow"] | int
RunsOn = Literal["one_worker", "every_worker"]


class Missed(StrEnum):
    """The rule for slots at which no scheduler was running."""

    SKIP = "skip"
    ONE = "one"
    """One run for all of them."""
    ALL = "all"
    """One run each, at most ``most_missed``: the latest ones."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule, and the job that each of its slots makes."""

    rule: Rule
    job: NewJob | None = None
    """Without an id; None: a chore of our own."""
    missed: Missed = Missed.ONE
    most_missed: int = 100
    overlap: Overlap = "skip"
    """While a run is active: skip the slot, let it wait, or ignore the run. A number: skip the slot
    while that number of runs is active.
    """
    jitter: timedelta = timedelta(0)
    starts: datetime | None = None
    ends: datetime | None = None
    on: RunsOn = "one_worker"
    """Every worker: each that serves the queue runs it at every slot, and no job is stored."""

    def __post_init__(self) -> None:
        set_to = msgspec.structs.force_setattr
        try:
            set_to(self, "missed", Missed(self.missed))
        except ValueError:
            message = f"missed must be 'skip', 'one' or 'all', got {shown(self.missed)}"
            raise InvalidArgument(message) from None
        _whole("most_missed", self.most_missed, _MOST)
        if not isinstance(self.overlap, str):
            _whole("overlap", self.overlap, _MOST_ACTIVE)
        elif self.overlap not in ("skip", "queue", "allow"):
            message = (
                f"overlap must be 'skip', 'queue', 'allow' or a number of runs, "
                f"got {shown(self.overlap)}"
            )
            raise InvalidArgument(message)
        set_to(self, "jitter", duration(self.jitter, "jitter"))
        for name in ("starts", "ends"):
            if getattr(self, name) is not None:
                set_to(self, name, aware(getattr(self, name), name))
        if self.starts is not None and self.ends is not None and self.ends <= self.starts:
            message = f"ends ({self.ends}) must be after starts ({self.starts})"
            raise InvalidArgument(message)
        if self.follows and self.overlap not in ("skip", 1):
            message = "with Every(after='end') no two runs overlap: leave overlap out"
            raise InvalidArgument(message)
        if self.on != "one_worker":
            self._check_every_worker()

    def _check_every_worker(self) -> None:
        if self.on != "every_worker":
            message = f"on must be 'one_worker' or 'every_worker', got {shown(self.on)}"
            raise InvalidArgument(message)
        out = {
            "after='end'": self.follows,
            "Manual()": isinstance(self.rule, Manual),
            "missed='all'": self.missed is Missed.ALL,
            "overlap": self.overlap != "skip",
            "jitter": bool(self.jitter),
        }
        for what in (name for name, given in out.items() if given):
            message = f"with on='every_worker' a worker skips slots it cannot run: leave {what} out"
            raise InvalidArgument(message)
        msgspec.structs.force_setattr(self, "missed", Missed.SKIP)

    @property
    def follows(self) -> bool:
        """Whether the next slot hangs on the end of the last run."""
        return isinstance(self.rule, Every) and self.rule.after == "end"

    @property
    def most_active(self) -> int | None:
        """How many runs may be active when another is added; None: any number."""
        if isinstance(self.overlap, int):
            return self.overlap
        return 1 if self.overlap == "skip" else None


def _whole(name: str, value: object, most: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not isinstance(value, int) or not 1 <= value <= most:
        message = f"{name} must be a whole number from 1 to {most:,}, got {shown(value)}"
        raise InvalidArgument(message)


class ScheduleRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One firing of a schedule, and what became of it."""

    slot: datetime
    job: JobId | None = None
    """None: nothing was started, for the reason in ``outcome``."""
    outcome: str = ""
    """Empty while it is active."""
    ended_at: datetime | None = None
    by: str = ""
    """The operator who triggered it; empty: its slot had come."""

    @property
    def active(self) -> bool:
        """Whether it may still be waiting or running."""
        return self.job is not None and not self.outcome


class WorkerRun(msgspec.Struct, frozen=True):
    """The last run of a schedule in one worker, of those that run on every worker."""

    worker: str
    slot: datetime
    outcome: str
    ended_at: datetime


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known of a schedule but when it fires next."""

    plan: Schedule
    """The plan in effect."""
    written: Schedule | None = None
    """The plan of the last declaration in code; None: it was made at run time."""
    paused: bool = False
    removed: bool = False
    """A person removed it; kept, so that the code that declares it does not bring it back."""
    ended: bool = False
    """It will never fire again: its only slot, or its last, has been."""
    problem: str = ""
    """Why it does not fire although it should."""
    held: datetime | None = None
    """The slot it was kept from because no process declares it any more."""
    runs: tuple[ScheduleRun, ...] = ()
    """The latest ones, oldest first; with those that are still active."""
    fired: int = 0
    left_out: int = 0
    """Slots without a run."""
    failures: int = 0
    """Runs in a row that failed, of those whose end is known here."""
    changed_by: str = ""
    changed_at: datetime | None = None
    on_workers: tuple[WorkerRun, ...] = ()
    """Of a schedule that runs on every worker: the last run in each, the latest at the end."""
    writer: str = ""
    """Which scheduler moved it on: two that do so at once would write the same but for this, and
    each must know whether the move was its own."""

    @property
    def fires(self) -> bool:
        """Whether it fires by itself."""
        return not (self.paused or self.removed or self.ended or self.problem)

    @property
    def edited(self) -> bool:
        """Whether a person's numbers hold instead of the code's."""
        return self.written is not None and self.written != self.plan

    def ran_on(self, run: WorkerRun) -> ScheduleState:
        """Return the same with this run as the last in its worker."""
        others = [one for one in self.on_workers if one.worker != run.worker]
        return msgspec.structs.replace(self, on_workers=(*others[1 - _WORKERS :], run))

    def settled(self, ended: Mapping[JobId, str]) -> ScheduleState:
        """Return the same, knowing how runs that were active have ended."""
        runs, failures = [], self.failures
        for run in self.runs:
            if run.active and run.job is not None and run.job in ended:
                outcome = ended[run.job]
                if outcome == State.FAILED:
                    failures += 1
                elif outcome not in _NO_VERDICT:  # what is gone has not failed: that is kept longer
                    failures = 0
                runs.append(msgspec.structs.replace(run, outcome=outcome))
            else:
                runs.append(run)
        return msgspec.structs.replace(self, runs=tuple(runs), failures=failures)


class TriggerAnswer(msgspec.Struct, frozen=True):
    """The result of running a schedule now."""

    job: NewJob
    created: bool
    holder: JobId | None = None
    """Not created: the job that holds its unique key."""
    expired: Sequence[JobId] = ()
    """Created: jobs that held it, waited past their expiry and were discarded."""


class DueFirings(NamedTuple):
    """The runs of a due schedule."""

    slots: list[datetime]
    """To fire, oldest first."""
    left_out: int
    """Lower bound of the slots that were missed for good."""
    next_at: datetime | None


def first_slot(plan: Schedule, now: datetime) -> datetime | None:
    """Return when a schedule that is made, changed or resumed now fires first."""
    if isinstance(plan.rule, Once):
        # An overdue one fires once, at once.
        return _within(plan, plan.rule.at)
    start = now if plan.starts is None else max(now, plan.starts - _US)
    if plan.follows:
        return _within(plan, start)
    return _within(plan, next_slot(plan.rule, start))


def _within(plan: Schedule, slot: datetime | None) -> datetime | None:
    """Return a slot; None after the end."""
    return None if slot is None or (plan.ends is not None and slot >= plan.ends) else slot


def next_slots(rule: Rule, now: datetime, most: int) -> list[datetime]:
    """Return when a rule that began now would fire next."""
    return planned_slots(Schedule(rule=rule), now, most)


def planned_slots(plan: Schedule, now: datetime, most: int) -> list[datetime]:
    """Return the next slots of a schedule, as if it began now."""
    slots: list[datetime] = []
    slot = None if plan.follows else first_slot(plan, now)
    while slot is not None and len(slots) < most and (plan.ends is None or slot < plan.ends):
        slots.append(slot)
        slot = next_slot(plan.rule, slot)
    return slots


def due_firings(plan: Schedule, next_at: datetime, now: datetime) -> DueFirings:
    """Return which slots to fire now, and when to look again; ``next_at`` is due."""
    if plan.follows:
        return DueFirings([next_at], 0, None)
    most = plan.most_missed if plan.missed is Missed.ALL else _most_recent(plan)
    until = now if plan.ends is None else min(now, plan.ends - _US)
    slots = latest_slots(plan.rule, next_at, until, most + 1)
    fresh = [slot for slot in slots if now - slot <= MISSED_AFTER]
    missed = slots[: len(slots) - len(fresh)]
    match plan.missed:
        case Missed.ALL:
            fire = slots[-most:]
        case Missed.ONE if not fresh:
            fire = missed[-1:]
        case _:
            fire = fresh
    return DueFirings(fire, len(slots) - len(fire), _within(plan, next_slot(plan.rule, now)))


def _most_recent(plan: Schedule) -> int:
    """Return how many slots can lie within the time that counts as not missed, within reason."""
    if isinstance(plan.rule, Every):
        return min(MISSED_AFTER // plan.rule.period + 1, _MOST)
    return int(MISSED_AFTER.total_seconds()) + 1


def merge_plans(plan: Schedule, old: Schedule, new: Schedule) -> Schedule:
    """Return the plan in effect after a new declaration in code: the code's values, except those
    that an operator has set.
    """
    theirs = {
        name: getattr(plan, name)
        for name in Schedule.__struct_fields__
        if getattr(plan, name) != getattr(old, name)
    }
    return msgspec.structs.replace(new, **theirs)


@lru_cache(4096)
def read_state(body: bytes) -> ScheduleState | str:
    """Read what is stored of a schedule; if that cannot be read, say why.

    Remembers what it has read: pages and workers look at thousands of schedules again and again,
    and most have not changed.
    """
    try:
        return msgspec.json.decode(body, type=ScheduleState)
    except (msgspec.DecodeError, ValueError) as error:
        return str(error)


def trim_runs(runs: Sequence[ScheduleRun], plan: Schedule) -> tuple[ScheduleRun, ...]:
    """Return the latest runs; older ones only while they are active, as many as are counted."""
    most = max(_REMEMBERED, plan.most_active or 0)
    older = [run for run in runs[:-RUNS_KEPT] if run.active]
    return (*older[-most:], *runs[-RUNS_KEPT:])


# --- the job of a slot ---------------------------------------------------------------------------


def job_of_slot(name: str, plan: Schedule, slot: datetime) -> NewJob:
    """Return the job of a slot: always the same one, so that inserting it twice is inserting it
    once.
    """
    digest = blake2b(f"{name}\x1f{to_us(slot)}".encode(), digest_size=16)
    spread = int.from_bytes(digest.digest()[:4]) / 2**32
    return job_of_schedule(
        name, plan, _id_of(slot, digest.hexdigest()), slot + plan.jitter * spread
    )


def job_of_schedule(name: str, plan: Schedule, job_id: JobId, at: datetime | None = None) -> NewJob:
    """Return a job of a schedule. Where runs wait for each other it draws on the turn, as things
    stand now: a person may have changed ``overlap`` since the call was written down.
    """
    if plan.job is None:
        message = f"schedule {name!r} makes no jobs"
        raise InvalidArgument(message)
    turn = (LimitUse(turn_of(name)),) if plan.overlap == "queue" else ()
    limits = (*plan.job.limits, *turn)
    return msgspec.structs.replace(plan.job, id=job_id, at=at, delay=None, limits=limits)


def turn_of(name: str) -> str:
    """Return the name of the limit that lets one run of a schedule go at a time."""
    return f"{name} (schedule)"


def _id_of(slot: datetime, digest: str) -> JobId:
    """Begins with the slot in milliseconds, as other ids begin with the time they were made."""
    stamp = f"{max(to_us(slot), 0) // 1000:012x}"
    return JobId(f"{stamp}{_VERSION}{digest[:3]}8{digest[3:18]}")


def slot_of(job: JobId) -> datetime | None:
    """Return the slot a job was made for, to the millisecond; None: no schedule made it."""
    if len(job) != 32 or job[12] != _VERSION:
        return None
    try:
        return from_us(int(job[:12], 16) * 1000)
    except (OverflowError, ValueError):
        return None  # another program made the id: it begins with no instant
