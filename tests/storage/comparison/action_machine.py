"""More for two stores to agree on: orders, their records, what people look for, and the journal."""

from __future__ import annotations

import random
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.storage.comparison.choices import QUEUES
from tests.storage.comparison.limit_machine import FlowMachine
from tests.storage.comparison.machine import PLAIN, SEEDS, Key
from windlass._core.job.error_origin import frame_of
from windlass._core.job.job import JobId
from windlass._core.job.state import Shown, State
from windlass._storage.protocol.actions import (
    AuditNote,
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.lists.list_order import possible_orders, sort_time_of
from windlass._storage.protocol.storage import Storage
from windlass.testing.conformance.copy.dump import dumped, without_numbers
from windlass.testing.conformance.steps import every

SECOND = timedelta(seconds=1)
TEXTS = ("trace", "VALUEERROR", "0a", "%", "no", "gone")


class OrderMachine(FlowMachine):
    """The steps of operating, among all others."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[AuditNote] = []

    @precondition(lambda self: self.ids)
    @rule(seed=SEEDS)
    def order(self, seed: int) -> None:
        """For some jobs, the younger the likelier; now and then it is said again."""
        chance = random.Random(seed)
        ids = [self.ids[-1 - int(len(self.ids) * chance.random() ** 2)] for _ in range(3)]
        ids = ids[: chance.randint(1, 3)]
        order, note = self.an_order(chance), self.a_note(chance)

        async def ask(store: Storage, _: int) -> object:
            return list(await store.orders.order(order, ids, note))

        self.agree(ask)

    def an_order(self, chance: random.Random) -> JobAction:
        orders: list[JobAction] = [
            *(Requeue(), Requeue(), Discard("enough"), Cancel(), RunNow(), Delete()),
            *[self.an_edit(chance)] * 4,
        ]
        return chance.choice(orders)

    def an_edit(self, chance: random.Random) -> Edit:
        due = chance.choice([None, None, -60, 0, 0.000001, 3, 40])
        return Edit(
            due=None if due is None else self.clock.now() + timedelta(seconds=due),
            priority=chance.choice([None, -1, 0, 1]),
            queue=chance.choice([None, *QUEUES]),
        )

    def a_note(self, chance: random.Random) -> AuditNote:
        if self.notes and chance.random() < 0.2:
            return chance.choice(self.notes[-4:])
        note = AuditNote(
            id=f"{len(self.notes) + 1:032x}",
            who=chance.choice(["alice", "bob"]),
            what="jobs.try",
            subject=chance.choice(["a", "b"]),
        )
        self.notes.append(note)
        return note

    @rule(seed=SEEDS)
    def order_jobs(self, seed: int) -> None:
        chance = random.Random(seed)
        news, note = [self.a_job(chance) for _ in range(2)], self.a_note(chance)

        async def ask(store: Storage, _: int) -> object:
            return list(await store.orders.insert(news, note))

        self.agree(ask)

    # --- looking ---

    @rule(seed=SEEDS)
    def look_for(self, seed: int) -> None:
        """By one to three fields at once."""
        self.meet_the_expired()
        chance = random.Random(seed)
        wanted = JobFilter()
        for _ in range(chance.randint(1, 3)):
            wanted = self.narrowed(wanted, chance)
        self.agree(lambda store, _: every(store, wanted, limit=chance.choice([2, 50])))
        order = chance.choice(possible_orders(wanted))
        limit = chance.choice([2, 50])

        async def ask(store: Storage, _: int) -> object:
            """Jobs of one instant may come in any order."""
            ids = await every(store, PLAIN(wanted, order=order), limit=limit)
            jobs = [job for job in await store.admin.get(ids) if job is not None]
            return [sort_time_of(job, order) for job in jobs], sorted(ids)

        self.agree(ask)

    def meet_the_expired(self) -> None:
        if not self.expired_are_met_alike:
            self.both(lambda store, _: store.maintenance.expire(1000))

    def narrowed(self, wanted: JobFilter, chance: random.Random) -> JobFilter:
        at = self.clock.now() - chance.choice([0, 1, 5, 60]) * SECOND
        job = chance.choice(self.ids) if self.ids else JobId("0" * 32)
        fields: list[dict[str, object]] = [
            {"states": chance.sample(list(State), 2)},
            {"shown": chance.sample(list(Shown), 2)},
            {"queue": chance.choice(QUEUES)},
            {"task": chance.choice(["t", "u", "sorry"])},
            {"tag": "x"},
            {"key": chance.choice(["k1", "k2", "k3"])},
            {"worker": chance.choice([*self.names.values()])},
            {"parent": job},
            {"error": chance.choice(["ValueError", "WorkerLost"])},
            {"frame": frame_of("trace")},
            {"created_from": at},
            {"created_until": at},
            {"finished_from": at},
            {"finished_until": at},
            {"text": chance.choice(TEXTS)},
        ]
        return PLAIN(wanted, **chance.choice(fields))

    @rule(cap=st.integers(1, 4))
    def count_to(self, cap: int) -> None:
        self.meet_the_expired()

        async def ask(store: Storage, _: int) -> object:
            return list(await store.admin.counts(cap=cap))

        self.agree(ask)

    @rule(
        queue=st.sampled_from([None, *QUEUES]),
        task=st.sampled_from([None, "t"]),
        age=st.sampled_from([None, 0, 5]),
    )
    def look_at_errors(self, queue: str | None, task: str | None, age: int | None) -> None:
        since = None if age is None else self.clock.now() - age * SECOND

        async def ask(store: Storage, _: int) -> object:
            found = await store.admin.errors(queue=queue, task=task, since=since)
            # Of several that failed at one instant any may be the last one.
            groups = {
                (one.kind, one.frame): (one.count, one.first, one.last, one.tasks, one.queues)
                for one in found.groups
            }
            return groups, found.complete

        self.agree(ask)

    @rule(subject=st.sampled_from([None, "a", "b"]))
    def read_the_records(self, subject: str | None) -> None:
        async def ask(store: Storage, _: int) -> object:
            found = await store.orders.audits(limit=20, subject=subject)
            return [PLAIN(record, number=0) for record in found]

        self.agree(ask)

    # --- the journal ---

    @precondition(lambda self: self.claims and self.claims[0])
    @rule(seed=SEEDS)
    def write_down(self, seed: int) -> None:
        """Lines and events of runs of any time: some jobs are not there any more."""
        chance = random.Random(seed)
        keys = sorted(self.claims[0])[-6:]
        picked = [(chance.choice(keys), chance.randint(1, 3)) for _ in range(3)]

        async def ask(store: Storage, index: int) -> object:
            await store.journal.append_logs(
                [self.a_chunk(index, key, number) for key, number in picked]
            )
            events = [self.an_event(index, key) for key, _ in picked]
            kept = await store.journal.append_events(events)
            now = self.clock.now()
            found = await store.journal.events(now - 60 * SECOND, now + SECOND, limit=20)
            return kept, list(found)

        self.agree(ask)

    def a_chunk(self, index: int, key: Key, number: int) -> LogChunk:
        line = LogLine(self.clock.now(), 20, f"{key[1]}.{number}")
        return LogChunk(self.claims[index][key].claim, number, (line,))

    def an_event(self, index: int, key: Key) -> EventRecord:
        job = self.claims[index][key]
        return EventRecord(
            at=self.clock.now(), kind="told", job=key[0], task=job.task, queue=job.queue
        )

    # --- the end ---

    def teardown(self) -> None:
        if self.stores:
            self.meet_the_expired()
            self.agree(self._everything)
        super().teardown()

    async def _everything(self, store: Storage, _: int) -> object:
        return without_numbers(await dumped(store, page=100))
