"""More for two stores to agree on: queues, budgets, breakers, retention."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.storage.comparison.choices import LIMIT_NAMES, QUEUES
from tests.storage.comparison.machine import Machine
from windlass._core.job.state import State
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.breaker import BreakerState
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.protocol.jobs import Outlook
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.storage import Storage

SETTINGS = (
    QueueSettings(),
    QueueSettings(max_running=1),
    QueueSettings(max_running=2),
    QueueSettings(
        max_running=3,
        backoff=Backoff.fixed(5),
        cool_down=Backoff.waits([1, 2]),
        keep_failed=timedelta(0),
    ),
)
SECOND = timedelta(seconds=1)
ENDED = (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DISCARDED)
AGES = st.sampled_from([0 * SECOND, 2 * SECOND, 60 * SECOND])


class FlowMachine(Machine):
    """The steps of flow control, among all others."""

    @rule(
        queue=st.sampled_from(QUEUES),
        new=st.sampled_from(SETTINGS),
        old=st.none() | st.sampled_from(SETTINGS),
    )
    def change(self, queue: str, new: QueueSettings, old: QueueSettings | None) -> None:
        """By somebody who has looked, or who only believes to know."""

        async def ask(store: Storage, _: int) -> bool:
            seen = {record.queue: record.settings for record in await store.queues.queues()}
            stored = seen.get(queue, QueueSettings())
            return await store.queues.change(queue, new, old=stored if old is None else old)

        self.agree(ask)

    @rule(queue=st.sampled_from(QUEUES))
    def warm(self, queue: str) -> None:
        self.agree(lambda store, _: store.queues.warm(queue))

    @rule(
        name=st.sampled_from([*LIMIT_NAMES, "nobody"]),
        key=st.sampled_from(["", "x"]),
        verb=st.sampled_from(["drain", "reset"]),
    )
    def turn(self, name: str, key: str, verb: str) -> None:
        self.agree(lambda store, _: getattr(store.limits, verb)(name, key))

    @rule(
        state=st.sampled_from(ENDED),
        age=AGES,
        apart=st.none() | st.dictionaries(st.sampled_from([*QUEUES, "nobody"]), AGES),
    )
    def prune(self, state: State, age: timedelta, apart: dict[str, timedelta] | None) -> None:
        self.agree(
            lambda store, _: store.maintenance.prune(
                state=state, older_than=age, limit=50, apart=apart
            )
        )

    @rule(queue=st.sampled_from(QUEUES))
    def is_it_worth_a_claim(self, queue: str) -> None:
        """The look before a claim may err on the side of yes, or of too early; never of no."""
        reference, ours = self.both(lambda store, _: store.jobs.outlook([queue]))
        assert isinstance(ours, Outlook)
        assert isinstance(reference, Outlook)
        assert ours.claimable or not reference.claimable
        if not ours.claimable and reference.next_at is not None:
            assert ours.next_at is not None
            assert ours.at < ours.next_at <= reference.next_at

    @rule()
    def tidy(self) -> None:
        self.agree(lambda store, _: store.maintenance.tidy())

    @invariant()
    def every_queue_is_the_same(self) -> None:
        if self.stores:
            self.agree(self._queues)

    async def _queues(self, store: Storage, _: int) -> object:
        return list(await store.queues.queues())

    @invariant()
    def every_budget_is_the_same(self) -> None:
        if self.stores:
            self.agree(self._budgets)

    async def _budgets(self, store: Storage, _: int) -> object:
        now = self.clock.now()
        budgets = {
            (name, state.key): _told(state, now)
            for name in LIMIT_NAMES
            for state in await store.limits.states(name)
        }
        return {budget: told for budget, told in budgets.items() if told != _UNUSED}


Told = tuple[int, datetime | None, BreakerState]
_UNUSED: Told = (0, None, BreakerState())


def _told(state: LimitState, now: datetime) -> Told:
    """What matters of a budget: one that is full, closed and idle may as well be forgotten."""
    until = state.spent_until
    owes = until if until is not None and until > now else None
    return state.running, owes, state.breaker or BreakerState()
