"""What must hold when a world has come to rest: nothing lost, nothing invented, books in order.

The numbers are those of the reliability plan: 1 no loss, 2 no invention, 3 enqueue idempotent,
8 done needs a run, 22 conservation, 23 liveness.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.simulation.framework.history import Ask, Change, Ledger, Rule
from tests.simulation.invariants.jobs import SPECS, ended
from tests.simulation.world.workload import result_of
from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.job.state import TERMINAL, State, Verb
from windlass._core.stats.rollup import COALESCED, bucket_of, minute_of
from windlass._core.values.instants import span_us
from windlass._core.values.payload import decode_any
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.testing._clock import START

__all__ = ["Accounts"]

_WITH_ERROR, _WITHOUT_ERROR = 24, 8
"""Rows of a job's history: the newest of each kind."""
_Minute = tuple[datetime, str, str]


class Accounts(Rule):
    """Counts every accepted finish, and compares with what the store says in the end."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._counts: defaultdict[_Minute, Counter[str]] = defaultdict(Counter)
        self._wait: defaultdict[_Minute, Counter[int]] = defaultdict(Counter)
        self._run: defaultdict[_Minute, Counter[int]] = defaultdict(Counter)
        self._ended: defaultdict[JobId, list[tuple[int, str]]] = defaultdict(list)

    def job_changed(self, change: Change) -> None:
        verb, before = ended(change), change.before
        if before is None:
            self._ended.pop(change.job, None)
        if verb is None or before is None:
            return
        asked = self.ledger.asked[change.job]
        minute = (minute_of(change.at), asked.queue, asked.task)
        self._counts[minute][verb.value] += 1
        self._wait[minute][bucket_of(span_us(before.started_at - before.due))] += 1
        self._run[minute][bucket_of(span_us(change.at - before.started_at))] += 1
        # Who gives a job back has it wait only where he cannot run it, and then nothing ran.
        after = change.after
        missed = verb is Verb.RELEASE and after is not None and after.due > change.at
        if verb is not Verb.SUCCEED and not missed:
            self._ended[change.job].append((before.claim_number, verb.value))

    # --- the end ------------------------------------------------------------------------------

    async def close(self, ask: Ask) -> None:
        """Compare."""
        self._nothing_lost()
        stored = await ask("admin.find", JobFilter(), limit=100_000)
        self._rows_agree({job.id: job for job in stored})
        await self._rollups_agree(ask)
        await self._counts_agree(ask)
        await self._gates_are_empty(ask)
        for job, claims in self._ended.items():
            if job in self.ledger.jobs:
                history = await ask("admin.history", job)
                if not _is_history_of(claims, history):
                    told = [(one.claim_number, str(one.verb)) for one in history]
                    self._object("22 conservation", f"the history of {job}: {told}, not {claims}")

    def _object(self, rule: str, what: str) -> None:
        self.ledger.object(rule, what)

    def _nothing_lost(self) -> None:
        ledger = self.ledger
        for job in sorted(ledger.acknowledged):
            if job not in ledger.jobs and job not in ledger.deleted:
                self._object("1 no loss", f"{job} was acknowledged and is not there")

    def _rows_agree(self, stored: dict[JobId, JobRecord]) -> None:
        ledger = self.ledger
        if missing := set(ledger.jobs) - set(stored):
            self._object("1 no loss", f"{sorted(missing)} cannot be found")
        for job in stored.values():
            asked, view = ledger.asked.get(job.id), ledger.jobs.get(job.id)
            if asked is None or view is None:
                self._object("2 no invention", f"{job.id} is stored, and nobody asked for it")
                continue
            if (job.task, job.queue, job.priority, job.payload, job.budget, job.limits) != (
                *(asked.task, asked.queue, asked.priority, asked.payload),
                *(asked.max_attempts, asked.limits),
            ):
                self._object("2 no invention", f"{job.id} is not what was asked for")
            if (job.state, job.claim_number, job.attempt) != (
                *(view.state, view.claim_number, view.attempt),
            ):
                self._object("9 state edges", f"{job.id} changed, and no operation was seen")
            if job.state is State.SUCCEEDED:
                self._check_result(job)
            elif job.state not in TERMINAL:
                self._object("23 liveness", f"{job.id} is {job.state} in a world at rest")

    def _check_result(self, job: JobRecord) -> None:
        result = decode_any(job.result)
        if result != result_of(job.id, job.claim_number):
            self._object("8 done needs a run", f"{job.id} has the result {result!r}")

    async def _rollups_agree(self, ask: Ask) -> None:
        day = timedelta(days=1)  # the clock may have been set, in either direction
        rollups = await ask("admin.rollups", START - day, START + 10 * day)
        told = {(one.minute, one.queue, one.task): one for one in rollups}
        for minute in sorted({*told, *self._counts}):
            one = told.get(minute)
            expected = [{**self._counts[minute]}, {**self._wait[minute]}, {**self._run[minute]}]
            found = [{}, {}, {}] if one is None else [{**one.counts}, {**one.wait}, {**one.run}]
            found[0].pop(COALESCED, None)  # an enqueue whose answer was lost counts again
            if expected != found:
                self._object("22 rollups", f"{minute}: {found[0]}, not {expected[0]}")

    async def _gates_are_empty(self, ask: Ask) -> None:
        for name in SPECS:
            for state in await ask("limits.states", name):
                if state.running:
                    self._object("16 no leak", f"{state} in a world at rest")

    async def _counts_agree(self, ask: Ask) -> None:
        recount: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for job, view in self.ledger.jobs.items():
            recount[self.ledger.asked[job].queue][view.state.value] += 1
        for counts in await ask("admin.counts"):
            told = {state: getattr(counts, state) for state in map(str, TERMINAL)}
            if told != {state: recount[counts.queue][state] for state in told}:
                self._object("22 conservation", f"{counts.queue}: {counts}")


def _is_history_of(claims: Sequence[tuple[int, str]], history: Sequence[Attempt]) -> bool:
    """Return whether the history has all of these claims, but for the oldest of a full kind.

    A job that was given back has an error if its run was lost, and none otherwise.
    """
    told = [(one.claim_number, str(one.verb)) for one in history]
    plain = [one.claim_number for one in history if one.error is None]
    faulty = [one.claim_number for one in history if one.error is not None]
    forgotten = set(claims) - set(told)
    if told != [claim for claim in claims if claim not in forgotten]:
        return False
    for number, verb in forgotten:
        older = len(faulty) == _WITH_ERROR and number < faulty[0]
        if verb not in {"retry", "fail"}:
            older = older or (len(plain) == _WITHOUT_ERROR and number < plain[0])
        if not older:
            return False
    return len(plain) <= _WITHOUT_ERROR and len(faulty) <= _WITH_ERROR
