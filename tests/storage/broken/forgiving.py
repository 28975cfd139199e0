"""Stores that forgive queues too soon, too late, or never."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.storage.broken.table import fails
from windlass.core.cooling import GRACE
from windlass.core.state import Verb
from windlass.core.transition import Transition
from windlass.storage.memory.endings import Endings
from windlass.storage.memory.queues import MemoryQueues
from windlass.storage.memory.row import QueueRow, Row
from windlass.storage.protocol import Answer, AuditNote, Verdict
from windlass.testing.conformance import (
    ForgivenessConformance,
)

INSTANT = timedelta(microseconds=1)


# --- what is forgiven -------------------------------------------------------------------------


class _Forgiving(Endings):
    """Another way to forgive."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        raise AssertionError("say when")

    def queues(self, row: Row) -> list[QueueRow]:
        return [self._db.queues[row.asked.queue]]

    def tell_gates(self, row: Row, transition: Transition, verb: Verb, now: datetime) -> None:
        before = {queue: (r.cool_until, r.cool_downs) for queue, r in self._db.queues.items()}
        super().tell_gates(row, transition, verb, now)
        for name, kept in before.items():
            queue = self._db.queues[name]
            queue.cool_until, queue.cool_downs = kept
        for queue in self.queues(row):
            if queue.cool_until is not None and self.forgives(queue, transition, verb, now):
                queue.cool_until, queue.cool_downs = None, 0


def _is_past(row: QueueRow, now: datetime, grace: timedelta = GRACE) -> bool:
    return row.cool_until is not None and row.cool_until <= now - grace


@fails(ForgivenessConformance.test_a_success_that_was_under_way_ends_no_rest)
class ForgivesAtOnce(_Forgiving):
    """Any success ends a rest."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED


@fails(
    ForgivenessConformance.test_a_success_forgets_rests_that_ended_two_minutes_ago_and_not_an_instant_sooner
)
class ForgivesTooSoon(_Forgiving):
    """A success forgives an instant before the grace is over."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED and _is_past(row, now, GRACE - INSTANT)


@fails(ForgivenessConformance.test_within_the_grace_jobs_start_and_the_next_rest_is_longer)
class ForgivesWithoutGrace(_Forgiving):
    """A success forgives as soon as the rest is over."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED and _is_past(row, now, timedelta(0))


@fails(ForgivenessConformance.test_after_it_was_forgiven_a_queue_begins_at_the_first_rest)
class NeverForgives(_Forgiving):
    """No success ever counts."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return False


@fails(ForgivenessConformance.test_time_alone_forgives_nothing)
class TimeForgives(Endings):
    """A hit after a long time is the first one."""

    def end(self, transition: Transition, now: datetime) -> Answer:
        for row in self._db.queues.values():
            if transition.cools and _is_past(row, now):
                row.cool_until, row.cool_downs = None, 0
        return super().end(transition, now)


@fails(ForgivenessConformance.test_only_a_success_forgives)
class AnyEndForgives(_Forgiving):
    """A failure forgives like a success."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return _is_past(row, now)


@fails(ForgivenessConformance.test_a_success_in_another_queue_forgives_nothing)
class ForgivesEverywhere(_Forgiving):
    """A success of one queue forgives all."""

    def queues(self, row: Row) -> list[QueueRow]:
        return list(self._db.queues.values())

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED and _is_past(row, now)


@fails(ForgivenessConformance.test_a_success_that_is_not_kept_forgives_too)
class KeptSuccessesForgive(_Forgiving):
    """A success that is not kept does not count."""

    def forgives(self, row: QueueRow, transition: Transition, verb: Verb, now: datetime) -> bool:
        return verb is Verb.SUCCEED and transition.keep and _is_past(row, now)


@fails(ForgivenessConformance.test_a_refused_success_forgives_nothing)
class RefusedSuccessesForgive(Endings):
    """A success that comes too late forgives all the same."""

    def end(self, transition: Transition, now: datetime) -> Answer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REFUSED and transition.verb is Verb.SUCCEED:
            self._db.queues.clear()
        return answer


@fails(ForgivenessConformance.test_within_one_batch_each_finish_sees_what_the_one_before_it_left)
class SuccessesComeLast(Endings):
    """Of a batch the successes are stored after everything else."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[Answer]:
        order = sorted(transitions, key=lambda transition: transition.verb is Verb.SUCCEED)
        answers = dict(zip(map(id, order), super().end_all(order, now), strict=True))
        return [answers[id(transition)] for transition in transitions]


# --- warming ----------------------------------------------------------------------------------


@fails(ForgivenessConformance.test_warming_a_queue_ends_its_rest_and_forgets_those_before)
class WarmingKeepsTheCount(MemoryQueues):
    """The next rest is as long as if nobody had ended the last one."""

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        count = self._db.queues[queue].cool_downs
        await super().warm(queue)
        self._db.queues[queue].cool_downs = count


@fails(ForgivenessConformance.test_warming_leaves_everything_else_of_the_queue_as_it_is)
class WarmingForgetsTheQueue(MemoryQueues):
    """Ending a rest ends everything else that was said of the queue, too."""

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await super().warm(queue)
        del self._db.queues[queue]


@fails(ForgivenessConformance.test_warming_a_queue_that_does_not_rest_is_harmless)
class WarmingIsNoted(MemoryQueues):
    """A queue whose rest was ended is listed as one that has rested."""

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await super().warm(queue)
        self._db.queues[queue].cool_until = self._db.clock.now()


@fails(ForgivenessConformance.test_warming_wakes)
class WarmsSilently(MemoryQueues):
    """Nobody is told that a rest was ended."""

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        row = self._db.queues[queue]
        row.cool_until, row.cool_downs = None, 0
