"""Protocol bugs, planted one at a time: the simulation must find each of them.

A mutant patches the production classes (or their SQL) while it is planted. Nothing in the package
knows of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.simulation.invariants.workers import Poison
from tests.simulation.world.world import StoreName
from windlass._core.job import transition as core_transition
from windlass._core.job.job import Claim
from windlass._core.job.state import State, Verb
from windlass._storage.memory import MemoryDatabase
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.limits.budgets import MemoryBudgets
from windlass._storage.memory.workers import MemoryWorkers
from windlass._storage.protocol.jobs import Inserted, Verdict
from windlass._storage.protocol.workers import WorkerState
from windlass._storage.sqlite import workers as sqlite_workers
from windlass._storage.sqlite.jobs import apply as sqlite_apply
from windlass._storage.sqlite.jobs import claim as sqlite_claim
from windlass._storage.sqlite.jobs import insert as sqlite_insert
from windlass._storage.sqlite.jobs import waiting_jobs as sqlite_waiting
from windlass._storage.sqlite.limits import lanes as sqlite_lanes
from windlass._storage.sqlite.workers import SqliteWorkers
from windlass._worker.claim.claimer import Claimer
from windlass._worker.claim.slots import Slots
from windlass._worker.engine import Engine
from windlass._worker.finish.finisher import Finisher
from windlass._worker.liveness.reaper import Reaper
from windlass._worker.liveness.store_contact import StoreContact
from windlass._worker.run.execution import StopCause
from windlass._worker.run.runner import Runner


class Patch:
    """Replaces attributes, and puts them back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def __call__(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def sql(self, module: Any, old: str, new: str) -> None:
        """Change every statement of a module that says ``old``."""
        statements = {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, str) and old in value
        }
        assert statements, f"no statement of {module.__name__} says {old!r} any more"
        for name, value in statements.items():
            self(module, name, value.replace(old, new))

    def undo(self) -> None:
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)


Plant = Callable[[Patch], None]


class Mutant(msgspec.Struct, frozen=True):
    name: str
    store: StoreName
    plant: Plant
    rule: str = ""
    """What the violation it leads to begins with."""
    first: int = 1
    """The seed to begin with: of a world that gives the bug its chance, so few must be tried."""
    flows: bool = False
    """Whether it needs a world with flows."""


MUTANTS: list[Mutant] = []


def mutant(
    store: StoreName, rule: str = "", *, first: int = 1, flows: bool = False
) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(plant.__name__, store, plant, rule, first, flows))
        return plant

    return add


@contextmanager
def planted(one: Mutant) -> Iterator[None]:
    patch = Patch()
    try:
        one.plant(patch)
        yield
    finally:
        patch.undo()


# --- the fence --------------------------------------------------------------------------------


@mutant("memory")
def a_claim_reuses_the_number_of_the_last_one(patch: Patch) -> None:
    start = ClaimRules.start

    def reuse(self: ClaimRules, visit: Any, row: Any) -> None:
        row.claim_number = max(0, row.claim_number - 1)
        start(self, visit, row)

    patch(ClaimRules, "start", reuse)


@mutant("memory", first=27)
def a_finish_ignores_the_claim_number(patch: Patch) -> None:
    def held(self: MemoryDatabase, claim: Claim) -> Any:
        row = self.by_id.get(claim.job)
        return row if row is not None and row.state is State.RUNNING else None

    patch(MemoryDatabase, "held", held)


@mutant("sqlite", first=39)
def a_finish_in_sql_ignores_the_claim_number(patch: Patch) -> None:
    judge = sqlite_apply._apply

    def trust(connection: Any, transitions: Sequence[Any], now: int, *lists: Any) -> Any:
        current = dict(connection.execute("SELECT seq, claim_number FROM jobs"))
        trusted = [
            msgspec.structs.replace(
                one,
                claim=msgspec.structs.replace(
                    one.claim, number=current.get(one.claim.seq, one.claim.number)
                ),
            )
            for one in transitions
        ]
        return judge(connection, trusted, now, *lists)

    patch(sqlite_apply, "_apply", trust)


@mutant("sqlite")
def a_claim_in_sql_reuses_the_number_of_the_last_one(patch: Patch) -> None:
    patch.sql(sqlite_claim, "claim_number + 1", "max(claim_number, 1)")


@mutant("memory", first=145)
def the_reaper_ends_whatever_claim_there_is(patch: Patch) -> None:
    end = ApplyRules.end

    def careless(self: ApplyRules, transition: Any, now: datetime) -> Any:
        row = self._db.by_id.get(transition.claim.job)
        if row is not None and transition.by.startswith("reaper:"):
            claim = msgspec.structs.replace(transition.claim, number=row.claim_number)
            transition = msgspec.structs.replace(transition, claim=claim)
        return end(self, transition, now)

    patch(ApplyRules, "end", careless)


@mutant("memory", first=2)
def a_repeated_finish_is_counted_again(patch: Patch) -> None:
    end = ApplyRules.end

    def twice(self: ApplyRules, transition: Any, now: datetime) -> Any:
        answer = end(self, transition, now)
        if answer.verdict is Verdict.REPEATED and answer.verb is not None:
            self.count(self._db.by_id[transition.claim.job], answer.verb, now)
        return answer

    patch(ApplyRules, "end", twice)


# --- leases -----------------------------------------------------------------------------------


@mutant("memory", first=2)
def a_lost_claim_answer_is_never_cured(patch: Patch) -> None:
    patch(Claimer, "compare", lambda self, holding: None)


@mutant("sqlite", first=2)
def a_lost_claim_answer_is_never_cured_on_sqlite(patch: Patch) -> None:
    patch(Claimer, "compare", lambda self, holding: None)


@mutant("memory", first=38)
def the_buried_may_claim(patch: Patch) -> None:
    patch(ClaimRules, "is_live", lambda self, worker: True)


@mutant("sqlite", first=20)
def the_buried_may_claim_in_sql(patch: Patch) -> None:
    patch.sql(sqlite_claim, " AND state = 'live'", "")


@mutant("memory", first=60)
def a_reaper_fresh_from_an_outage_judges_at_once(patch: Patch) -> None:
    patch(StoreContact, "may_judge", property(lambda self: True))


@mutant("sqlite", first=2)
def a_reaper_fresh_from_an_outage_of_the_disk_judges_at_once(patch: Patch) -> None:
    patch(StoreContact, "may_judge", property(lambda self: True))


@mutant("memory", first=100)
def a_burial_does_not_look_again(patch: Patch) -> None:
    patch(MemoryWorkers, "bury_overdue", MemoryWorkers.bury)


@mutant("memory", first=5)
def a_beat_revives_the_buried(patch: Patch) -> None:
    beat = MemoryWorkers.beat

    async def revive(self: MemoryWorkers, worker: str, *, memory: int | None = None) -> Any:
        row = self._db.workers.get(worker)
        if row is not None and row.state is WorkerState.DEAD:
            row.state = WorkerState.LIVE
        return await beat(self, worker, memory=memory)

    patch(MemoryWorkers, "beat", revive)


@mutant("sqlite", first=4)
def a_beat_revives_the_buried_in_sql(patch: Patch) -> None:
    beat = "SET beat_at = ?2"
    patch.sql(sqlite_workers, beat, "SET state = 'live', ended_at = NULL, beat_at = ?2")
    live, answer = " AND state = 'live'", "\nRETURNING duty"
    patch.sql(sqlite_workers, live + answer, " AND state <> 'gone'" + answer)


@mutant("memory")
def the_lease_is_half_as_long_as_promised(patch: Patch) -> None:
    def hasty(self: MemoryWorkers) -> list[str]:
        boot = self._db.clock.boot()
        return [
            worker
            for worker, row in self._db.workers.items()
            if row.state is WorkerState.LIVE and boot - row.beat_boot > row.start.lease / 2
        ]

    patch(MemoryWorkers, "_overdue", hasty)


@mutant("memory")
def a_claim_answered_under_a_former_name_is_started(patch: Patch) -> None:
    register = Engine.__init__

    def nameless(self: Engine, *args: Any, **options: Any) -> None:
        register(self, *args, **options)
        identity = self.identity

        class Anybody(str):
            __slots__ = ()

            def __eq__(self, other: object) -> bool:
                return True

            def __hash__(self) -> int:
                return str.__hash__(self)

            def __ne__(self, other: object) -> bool:
                return False

        class Nameless:
            def __getattr__(self, name: str) -> Any:
                found = getattr(identity, name)
                return Anybody(found) if name == "id" else found

        self.claimer._identity = Nameless()  # type: ignore[assignment]

    patch(Engine, "__init__", nameless)


@mutant("memory")
def claims_are_given_back_though_they_run_here(patch: Patch) -> None:
    patch(Claimer, "_holds", lambda self, claim: False)


# --- attempts ---------------------------------------------------------------------------------


@mutant("memory", first=2)
def a_release_keeps_the_attempt(patch: Patch) -> None:
    accept = ApplyRules.accept

    def keep(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        if verb is Verb.RELEASE:
            transition = msgspec.structs.replace(transition, refund=False)
        accept(self, row, transition, verb, now)

    patch(ApplyRules, "accept", keep)


@mutant("memory")
def a_lost_attempt_costs_nothing(patch: Patch) -> None:
    accept = ApplyRules.accept

    def refund(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        if transition.by.startswith("reaper:"):
            transition = msgspec.structs.replace(transition, refund=True)
        accept(self, row, transition, verb, now)

    patch(ApplyRules, "accept", refund)


# --- enqueueing -------------------------------------------------------------------------------


@mutant("memory", first=4)
def a_key_is_checked_and_then_taken(patch: Patch) -> None:
    """Between the two, others come and go: the check sees what was there one insert ago."""
    insert = MemoryJobs.insert

    async def stale(self: MemoryJobs, jobs: Sequence[Any]) -> Any:
        db, now_held = self._db, dict(self._db.keys)
        seen = vars(db).get("_seen", {})
        vars(db)["_seen"] = now_held
        db.keys = {key: row for key, row in now_held.items() if key in seen}
        hidden = {key: row for key, row in now_held.items() if key not in seen}
        answers = await insert(self, jobs)
        db.keys = {**hidden, **db.keys}
        return answers

    patch(MemoryJobs, "insert", stale)


@mutant("sqlite")
def a_key_is_not_taken_in_sql(patch: Patch) -> None:
    patch(sqlite_insert, "find_holder", lambda connection, key, now, task: None)
    patch(
        sqlite_insert,
        "take_key",
        lambda connection, key, seq, *, period, now: connection.execute(
            "INSERT OR REPLACE INTO keys (key, seq, until) VALUES (?, ?, ?)",
            (key, seq, None if period is None else now + period),
        ),
    )


@mutant("memory", first=11)
def a_repeated_insert_is_another_job(patch: Patch) -> None:
    def again(self: MemoryJobs, job: Any, now: datetime) -> Any:
        old = self._db.by_id.get(job.id)
        if old is not None:
            self._db.remove(old)
        return insert(self, job, now)

    insert = MemoryJobs._insert
    patch(MemoryJobs, "_insert", again)


# --- what a claim may take --------------------------------------------------------------------


@mutant("memory")
def a_promotion_ignores_the_due_time(patch: Patch) -> None:
    promote = MemoryDatabase.promote

    def early(self: MemoryDatabase, queue: str, now: datetime, limit: int | None = None) -> int:
        return promote(self, queue, now.replace(year=now.year + 1), limit)

    patch(MemoryDatabase, "promote", early)


@mutant("sqlite")
def a_promotion_in_sql_ignores_the_due_time(patch: Patch) -> None:
    patch.sql(sqlite_waiting, "due <= ?2", "due <= ?2 + 3000000")


@mutant("memory")
def a_paused_queue_gives_jobs(patch: Patch) -> None:
    room = ClaimRules.room

    def open_wide(self: ClaimRules, queue: str, now: datetime) -> int:
        row = self._db.queues[queue]
        paused, row.paused = row.paused, False
        free = room(self, queue, now)
        row.paused = paused
        return free

    patch(ClaimRules, "open_queues", lambda self, wants: [want.queue for want in wants])
    patch(ClaimRules, "room", open_wide)


@mutant("memory")
def the_last_come_is_the_first_served(patch: Patch) -> None:
    stand = MemoryDatabase.stand_ready

    def reverse(self: MemoryDatabase, row: Any) -> None:
        due = row.due
        row.due = due - 2 * (due - datetime(2030, 1, 1, tzinfo=UTC))
        stand(self, row)
        row.due = due

    patch(MemoryDatabase, "stand_ready", reverse)


@mutant("memory", first=3)
def a_released_job_keeps_its_unit(patch: Patch) -> None:
    accept, usage = ApplyRules.accept, MemoryBudgets.usage
    leaked: dict[int, Counter[str]] = {}

    def forget(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        if verb is Verb.RELEASE:
            gates = {use.gate for use in row.asked.limits}
            leaked.setdefault(id(self._db.gates), Counter()).update(gates)
        accept(self, row, transition, verb, now)

    def leaking(self: MemoryBudgets, running: Any) -> Counter[str]:
        return usage(self, running) + leaked.get(id(self), Counter())

    patch(ApplyRules, "accept", forget)
    patch(MemoryBudgets, "usage", leaking)


@mutant("sqlite", first=2)
def an_ended_job_in_sql_opens_no_lane(patch: Patch) -> None:
    patch.sql(sqlite_lanes, "json_each(?1)) AND opens_at IS NULL", "json_each(?1)) AND 0")


@mutant("memory", first=6)
def units_are_counted_too_low(patch: Patch) -> None:
    usage = MemoryBudgets.usage

    def low(self: MemoryBudgets, running: Any) -> Counter[str]:
        return Counter({gate: count - 1 for gate, count in usage(self, running).items()})

    patch(MemoryBudgets, "usage", low)


@mutant("memory", first=66)
def a_suspect_does_not_wait_to_be_alone(patch: Patch) -> None:
    heads = ClaimRules.heads

    def together(self: ClaimRules, lanes: Any, *, solo: bool) -> Any:
        return [*heads(self, lanes, solo=True), *heads(self, lanes, solo=False)]

    patch(ClaimRules, "heads", together)


# --- ending -----------------------------------------------------------------------------------


@mutant("memory")
def a_cancel_request_is_forgotten_in_the_write(patch: Patch) -> None:
    patch(ApplyRules, "verb", lambda self, row, transition: transition.verb)


@mutant("memory", first=2)
def an_outcome_is_dropped_when_the_store_is_away(patch: Patch) -> None:
    flush = Finisher.flush

    async def drop(self: Finisher) -> int:
        try:
            return await flush(self)
        except Exception:  # noqa: BLE001
            self._sending = {}
            return 0

    patch(Finisher, "flush", drop)


@mutant("memory")
def the_claims_of_the_dead_are_not_looked_for(patch: Patch) -> None:

    async def blind(self: MemoryWorkers, limit: int) -> Any:
        return []

    patch(MemoryWorkers, "orphans", blind)


@mutant("memory", first=2)
def a_slot_is_lost_now_and_then(patch: Patch) -> None:
    give = Slots.give

    def forget(self: Slots, queue: str) -> None:
        self.__dict__["_given"] = self.__dict__.get("_given", 0) + 1
        if self.__dict__["_given"] != 7:
            give(self, queue)

    patch(Slots, "give", forget)


@mutant("sqlite")
def deaths_are_proven_of_the_living(patch: Patch) -> None:
    overdue = SqliteWorkers.overdue

    async def everybody(self: SqliteWorkers) -> Any:
        return [row.start.id for row in await self.workers() if row.state is WorkerState.LIVE]

    assert overdue is not everybody
    patch(SqliteWorkers, "overdue", everybody)
    patch(SqliteWorkers, "bury_overdue", SqliteWorkers.bury)


@mutant("memory", first=116)
def a_cancel_request_never_reaches_the_handler(patch: Patch) -> None:
    patch(Runner, "stop", _stop_unless(StopCause.CANCEL))


def _stop_unless(deaf_to: StopCause) -> Any:
    stop = Runner.stop

    def hear(self: Runner, claim: Claim, why: StopCause) -> bool:
        return why is not deaf_to and stop(self, claim, why)

    return hear


@mutant("memory")
def the_history_forgets_what_was_lost(patch: Patch) -> None:
    remember = ApplyRules.remember

    def forget(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        remember(self, row, transition, verb, now)
        if transition.by.startswith("reaper:"):
            row.history.pop()

    patch(ApplyRules, "remember", forget)


# --- the rest ---------------------------------------------------------------------------------


@mutant("memory")
def a_batch_loses_its_last_job(patch: Patch) -> None:
    insert = MemoryJobs.insert

    async def lose(self: MemoryJobs, jobs: Sequence[Any]) -> Any:
        if len(jobs) < 4:
            return await insert(self, jobs)
        return [*await insert(self, jobs[:-1]), Inserted(jobs[-1].id, created=True)]

    patch(MemoryJobs, "insert", lose)


@mutant("memory", first=244)
def leases_are_measured_on_a_clock_that_can_be_set(patch: Patch) -> None:
    def by_the_wall(self: MemoryWorkers) -> list[str]:
        now = self._db.clock.now()
        return [
            worker
            for worker, row in self._db.workers.items()
            if row.state is WorkerState.LIVE and now - row.beat_at > row.start.lease
        ]

    patch(MemoryWorkers, "_overdue", by_the_wall)


@mutant("memory")
def the_reaper_looks_every_half_minute(patch: Patch) -> None:
    step = Reaper.step

    async def lazy(self: Reaper) -> int:
        vars(self)["looks"] = vars(self).get("looks", 0) + 1
        return await step(self) if vars(self)["looks"] % 30 == 0 else 0

    patch(Reaper, "step", lazy)


@mutant("memory")
def nobody_is_ever_suspected(patch: Patch) -> None:
    patch(core_transition, "SOLO_AFTER", 1000)


@mutant("memory")
def a_retry_ignores_that_the_attempts_are_spent(patch: Patch) -> None:
    def again(job: Any, error: Any, policy: Any, **how: Any) -> Any:
        generous = msgspec.structs.replace(job, max_attempts=job.max_attempts + 1)
        return decide(generous, error, policy, **how)

    decide = core_transition._try_again
    patch(core_transition, "_try_again", again)


# --- the first start --------------------------------------------------------------------------


@mutant("memory", "15 expiry", first=4)
def every_claim_counts_as_a_start(patch: Patch) -> None:
    note = ApplyRules.note_start
    patch(ApplyRules, "note_start", lambda self, row, *, started: note(self, row, started=True))


@mutant("memory", "15 expiry")
def a_job_that_was_started_may_still_expire(patch: Patch) -> None:
    patch(ApplyRules, "note_start", lambda self, row, *, started: None)


# --- losses -----------------------------------------------------------------------------------


@mutant("memory", "24 losses", first=95)
def what_costs_nothing_clears_the_losses(patch: Patch) -> None:
    accept = ApplyRules.accept

    def forget(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        if verb in {Verb.SNOOZE, Verb.THROTTLE, Verb.RELEASE}:
            transition = msgspec.structs.replace(transition, lost=0, solo=False)
        accept(self, row, transition, verb, now)

    patch(ApplyRules, "accept", forget)


@mutant("memory", "24 losses")
def losses_are_counted_and_never_enough(patch: Patch) -> None:
    lose = core_transition._lost

    def forgive(job: Any, error: Any, policy: Any, **how: Any) -> Any:
        spared = msgspec.structs.replace(job, solo=False)
        return msgspec.structs.replace(lose(spared, error, policy, **how), solo=False)

    patch(core_transition, "_lost", forgive)
    patch(Poison, "death", lambda self, process: None)


# --- single runs ------------------------------------------------------------------------------


@mutant("memory", "24 single runs", first=12)
def a_stop_gives_back_what_must_not_run_twice(patch: Patch) -> None:
    give_back = core_transition._given_back

    def generous(job: Any, outcome: Any, **how: Any) -> Any:
        return give_back(msgspec.structs.replace(job, on_lost="retry"), outcome, **how)

    patch(core_transition, "_given_back", generous)


@mutant("memory", "24 single runs", first=68)
def a_loss_gives_back_what_must_not_run_twice(patch: Patch) -> None:
    lose = core_transition._lost

    def generous(job: Any, error: Any, policy: Any, **how: Any) -> Any:
        return lose(msgspec.structs.replace(job, on_lost="retry"), error, policy, **how)

    patch(core_transition, "_lost", generous)
