"""Stores that forgive queues too soon, too late, or never."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.storage.mutants.table import fails
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._core.limits.cooldown import RESET_AFTER
from windlass._storage.memory.io.rows import JobRow, QueueRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.queues import MemoryQueues
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass.testing.conformance import (
    CooldownEndConformance,
)

INSTANT = timedelta(microseconds=1)


# --- what is forgiven -------------------------------------------------------------------------


class _Forgiving(ApplyRules):
    """Another way to forgive."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        raise AssertionError("At must be a time")

    def queues(self, row: JobRow) -> list[QueueRow]:
        return [self._db.queues[row.asked.queue]]

    def tell_gates(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        before = {queue: (r.cool_until, r.cool_downs) for queue, r in self._db.queues.items()}
        super().tell_gates(row, transition, verb, now)
        for name, kept in before.items():
            queue = self._db.queues[name]
            queue.cool_until, queue.cool_downs = kept
        for queue in self.queues(row):
            if queue.cool_until is not None and self.forgives(queue, transition, verb, now):
                queue.cool_until, queue.cool_downs = None, 0


def _is_past(row: QueueRow, now: datetime, grace: timedelta = RESET_AFTER) -> bool:
    return row.cool_until is not None and row.cool_until <= now - grace


@fails(CooldownEndConformance.test_a_success_that_was_under_way_ends_no_rest)
class ForgivesAtOnce(_Forgiving):
    """Any success ends a rest."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED


@fails(
    CooldownEndConformance.test_a_success_resets_cool_downs_that_ended_two_minutes_ago_not_sooner
)
class ForgivesTooSoon(_Forgiving):
    """A success forgives an instant before the grace is over."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED and _is_past(row, now, RESET_AFTER - INSTANT)


@fails(CooldownEndConformance.test_within_the_grace_jobs_start_and_the_next_rest_is_longer)
class ForgivesWithoutGrace(_Forgiving):
    """A success forgives as soon as the rest is over."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED and _is_past(row, now, timedelta(0))


@fails(CooldownEndConformance.test_after_it_was_forgiven_a_queue_begins_at_the_first_rest)
class NeverForgives(_Forgiving):
    """No success ever counts."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return False


@fails(CooldownEndConformance.test_time_alone_forgives_nothing)
class TimeForgives(ApplyRules):
    """A hit after a long time is the first one."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        for row in self._db.queues.values():
            if transition.cools and _is_past(row, now):
                row.cool_until, row.cool_downs = None, 0
        return super().end(transition, now)


@fails(CooldownEndConformance.test_only_a_success_forgives)
class AnyEndForgives(_Forgiving):
    """A failure forgives like a success."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return _is_past(row, now)


@fails(CooldownEndConformance.test_a_success_in_another_queue_forgives_nothing)
class ForgivesEverywhere(_Forgiving):
    """A success of one queue forgives all."""

    def queues(self, row: JobRow) -> list[QueueRow]:
        return list(self._db.queues.values())

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED and _is_past(row, now)


@fails(CooldownEndConformance.test_a_success_that_is_not_kept_forgives_too)
class KeptSuccessesForgive(_Forgiving):
    """A success that is not kept does not count."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED and transition.keep and _is_past(row, now)


@fails(CooldownEndConformance.test_a_refused_success_forgives_nothing)
class RefusedSuccessesForgive(ApplyRules):
    """A success that comes too late forgives all the same."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REFUSED and transition.verb is Verb.SUCCEED:
            self._db.queues.clear()
        return answer


@fails(CooldownEndConformance.test_within_one_batch_each_finish_sees_what_the_one_before_it_left)
class SuccessesComeLast(ApplyRules):
    """Of a batch the successes are stored after everything else."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        order = sorted(transitions, key=lambda transition: transition.verb is Verb.SUCCEED)
        answers = dict(zip(map(id, order), super().end_all(order, now), strict=True))
        return [answers[id(transition)] for transition in transitions]


# --- warming ----------------------------------------------------------------------------------


@fails(CooldownEndConformance.test_warming_a_queue_ends_its_rest_and_forgets_those_before)
class WarmingKeepsTheCount(MemoryQueues):
    """The next rest is as long as if nobody had ended the last one."""

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        count = self._db.queues[queue].cool_downs
        await super().warm(queue)
        self._db.queues[queue].cool_downs = count


@fails(CooldownEndConformance.test_warming_leaves_everything_else_of_the_queue_as_it_is)
class WarmingForgetsTheQueue(MemoryQueues):
    """Ending a rest ends everything else that was said of the queue, too."""

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await super().warm(queue)
        del self._db.queues[queue]


@fails(CooldownEndConformance.test_warming_a_queue_that_does_not_rest_is_harmless)
class WarmingIsNoted(MemoryQueues):
    """A queue whose rest was ended is listed as one that has rested."""

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await super().warm(queue)
        self._db.queues[queue].cool_until = self._db.clock.now()


@fails(CooldownEndConformance.test_warming_wakes)
class WarmsSilently(MemoryQueues):
    """Nobody is told that a rest was ended."""

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        row = self._db.queues[queue]
        row.cool_until, row.cool_downs = None, 0
