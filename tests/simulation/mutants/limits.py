"""Planted bugs of the gates: limits, queues that rest or are full, breakers, keys, follow-ups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tests.simulation.mutants.jobs import Patch, mutant
from windlass._core.job.outcome import Succeeded
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import decide
from windlass._core.limits.cooldown import MAX_STEPS
from windlass._core.limits.limit import Rate, admit
from windlass._storage.memory import MemoryDatabase
from windlass._storage.memory.jobs import apply
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.limits import budgets
from windlass._storage.memory.limits.budgets import MemoryBudgets
from windlass._storage.protocol.jobs import Inserted, Verdict
from windlass._storage.sqlite.jobs import apply as sqlite_apply
from windlass._storage.sqlite.jobs import claim as sqlite_claim
from windlass._storage.sqlite.jobs import insert as sqlite_insert
from windlass._storage.sqlite.limits import budgets as sqlite_gates
from windlass._worker.finish import decisions
from windlass._worker.liveness.reaper import Reaper
from windlass._worker.run.execution import Execution

# --- limits -----------------------------------------------------------------------------------


@mutant("memory", "16 concurrency", first=6)
def keys_of_limits_are_not_counted(patch: Patch) -> None:
    usage = MemoryBudgets.usage

    def blind(self: MemoryBudgets, running: Any) -> Counter[str]:
        return Counter({gate: n for gate, n in usage(self, running).items() if ":" not in gate})

    patch(MemoryBudgets, "usage", blind)


@mutant("memory", "16 rate", first=10)
def a_bucket_is_one_token_deeper_than_promised(patch: Patch) -> None:
    patch(budgets, "admit", _generous)


@mutant("sqlite", "16 rate", first=16)
def a_bucket_in_sql_is_one_token_deeper_than_promised(patch: Patch) -> None:
    patch(sqlite_gates, "admit", _generous)


def _generous(rate: Rate, spent_until: Any, *, cost: float, now: datetime) -> Any:
    deeper = msgspec.structs.replace(rate, burst=rate.burst + 1)
    return admit(deeper, spent_until, cost=cost, now=now)


@mutant("memory", "16 rate", first=10)
def jobs_of_one_claim_share_a_token(patch: Patch) -> None:
    charge = MemoryBudgets.charge

    def once(self: MemoryBudgets, uses: Any, usage: Any, now: datetime) -> None:
        before = dict(self.spent)
        charge(self, uses, usage, now)
        if vars(self).get("_charged") == now:
            self.spent = {**self.spent, **before}
        vars(self)["_charged"] = now

    patch(MemoryBudgets, "charge", once)


# --- whole queues -----------------------------------------------------------------------------


@mutant("memory", "16 max_running")
def a_full_queue_has_room_for_one_more(patch: Patch) -> None:
    room = ClaimRules.room

    def roomy(self: ClaimRules, queue: str, now: datetime) -> int:
        free = room(self, queue, now)
        row = self._db.queues[queue]
        rests = row.cool_until is not None and row.cool_until > now
        return free if row.paused or rests else free + 1

    patch(ClaimRules, "room", roomy)


@mutant("memory", "16 cool-down", first=2)
def a_queue_that_rests_gives_jobs(patch: Patch) -> None:
    room = ClaimRules.room

    def awake(self: ClaimRules, queue: str, now: datetime) -> int:
        row = self._db.queues[queue]
        until, row.cool_until = row.cool_until, None
        free = room(self, queue, now)
        row.cool_until = until
        return free

    patch(ClaimRules, "room", awake)


@mutant("memory", "16 cool-down", first=26)
def every_hit_is_a_cool_down_of_its_own(patch: Patch) -> None:
    def cool(
        db: Any, queue: str, cools: Any, delay: timedelta, now: datetime
    ) -> tuple[datetime, bool]:
        row = db.queues[queue]
        wait = cools[min(row.cool_downs, len(cools) - 1)]
        row.cool_until = now + max(wait, delay)
        row.cool_downs = min(row.cool_downs + 1, MAX_STEPS)
        return row.cool_until, True

    patch(apply, "start_cooldown", cool)


@mutant("memory", "16 cool-down", first=2)
def the_first_success_forgives_a_queue(patch: Patch) -> None:
    def forgive(row: Any, now: datetime) -> None:
        if row.cool_until is not None and row.cool_until <= now:
            row.cool_until, row.cool_downs = None, 0

    patch(apply, "forget_old_cooldown", forgive)


@mutant("memory", "16 cool-down", first=2)
def a_throttled_job_is_due_before_its_queue_has_rested(patch: Patch) -> None:
    patch(ApplyRules, "due", lambda self, row, transition, verb, now: now + transition.delay)


@mutant("sqlite", "16 max_running")
def a_full_queue_in_sql_gives_jobs(patch: Patch) -> None:
    patch.sql(sqlite_claim, "(SELECT max_running FROM queues WHERE name = ?1)", "NULL")


@mutant("sqlite", "16 cool-down", first=2)
def a_queue_that_rests_in_sql_gives_jobs(patch: Patch) -> None:
    patch.sql(sqlite_claim, "(SELECT cool_until FROM queues WHERE name = ?1)", "NULL")


# --- breakers ---------------------------------------------------------------------------------


@mutant("memory", "16 breaker", first=4)
def an_open_breaker_lets_jobs_through(patch: Patch) -> None:
    patch(MemoryBudgets, "_holding", lambda self, spec, use: None)


@mutant("memory", "16 breaker", first=8)
def a_breaker_lets_many_trials_through(patch: Patch) -> None:
    shut = MemoryBudgets.shut

    def crowd(self: MemoryBudgets, uses: Any, usage: Counter[str], now: datetime) -> Any:
        counted = {gate: n for gate, n in usage.items() if gate not in self.breakers}
        return shut(self, uses, Counter(counted), now)

    patch(MemoryBudgets, "shut", crowd)


@mutant("memory", "16 breaker")
def a_success_closes_no_breaker(patch: Patch) -> None:
    patch(MemoryBudgets, "close_breakers", lambda self, uses: None)


@mutant("memory", "16 breaker", first=8)
def a_cancelled_run_is_a_failure(patch: Patch) -> None:
    tell = ApplyRules.tell_gates

    def blame(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        tell(self, row, transition, Verb.FAIL if verb is Verb.CANCEL else verb, now)

    patch(ApplyRules, "tell_gates", blame)


@mutant("sqlite", "16 breaker", first=8)
def an_open_breaker_in_sql_lets_jobs_through(patch: Patch) -> None:
    patch(sqlite_gates.SqliteBudgets, "_open_until", lambda self, gate, breaker: None)


@mutant("sqlite", "16 breaker", first=8)
def a_breaker_in_sql_lets_many_trials_through(patch: Patch) -> None:
    patch(sqlite_gates.SqliteBudgets, "_is_tried", lambda self, gate, breaker: False)


# --- keys -------------------------------------------------------------------------------------


@mutant("memory", "17 unique", first=4)
def a_replaced_job_lets_go_of_its_key(patch: Patch) -> None:
    replace = MemoryDatabase.replace

    def forget(self: MemoryDatabase, row: Any, new: Any, what: Any, now: datetime) -> None:
        replace(self, row, new, what, now)
        self.free_key(row)

    patch(MemoryDatabase, "replace", forget)


@mutant("memory", "17 replacing", first=31)
def a_running_job_is_replaced(patch: Patch) -> None:
    insert = MemoryJobs._insert

    def take_over(self: MemoryJobs, job: Any, now: datetime) -> Inserted:
        answer = insert(self, job, now)
        holder = self._db.by_id[answer.id]
        if not answer.created and holder.state is State.RUNNING:
            holder.asked = msgspec.structs.replace(holder.asked, payload=job.payload)
        return answer

    patch(MemoryJobs, "_insert", take_over)


@mutant("memory", "17 unique", first=40)
def a_key_held_for_a_time_goes_with_its_job(patch: Patch) -> None:
    finish = MemoryDatabase.finish

    def let_go(self: MemoryDatabase, row: Any, state: State, now: datetime) -> None:
        finish(self, row, state, now)
        self.free_key(row)

    patch(MemoryDatabase, "finish", let_go)


@mutant("memory", "17 unique", first=50)
def a_job_that_waits_again_has_lost_its_key(patch: Patch) -> None:
    accept = ApplyRules.accept

    def lose(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        accept(self, row, transition, verb, now)
        if verb is Verb.RETRY:
            self._db.free_key(row)

    patch(ApplyRules, "accept", lose)


@mutant("sqlite", "17 replacing", first=50)
def a_running_job_in_sql_is_replaced(patch: Patch) -> None:
    def take_over(connection: Any, job: Any, holder: Any, lanes: Any, now: int) -> bool:
        statement = "UPDATE jobs SET payload = ?2 WHERE seq = ?1 AND state = 1"
        connection.execute(statement, (holder.seq, job.payload))
        return replace(connection, job, holder, lanes, now)

    replace = sqlite_insert._replace
    patch(sqlite_insert, "_replace", take_over)


# --- follow-ups -------------------------------------------------------------------------------


@mutant("memory", "20 follow-ups")
def a_failure_is_stored_without_its_follow_up(patch: Patch) -> None:
    patch(ApplyRules, "follow", lambda self, job, part=None: None)


@mutant("memory", "20 follow-ups")
def a_success_is_stored_without_its_follow_up(patch: Patch) -> None:
    accept = ApplyRules.accept

    def alone(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        if verb is Verb.SUCCEED:
            transition = msgspec.structs.replace(transition, then=())
        accept(self, row, transition, verb, now)

    patch(ApplyRules, "accept", alone)


@mutant("memory", "9 state edges", first=27)
def a_repeated_failure_is_followed_up_again(patch: Patch) -> None:
    end = ApplyRules.end

    def again(self: ApplyRules, transition: Any, now: datetime) -> Any:
        answer = end(self, transition, now)
        for job in transition.then if answer.verdict is Verdict.REPEATED else ():
            self._db.remove(self._db.by_id[job.id])
            self.follow(job)
        return answer

    patch(ApplyRules, "end", again)


@mutant("memory", "20 follow-ups", first=164)
def a_cancelled_job_is_followed_up(patch: Patch) -> None:
    accept = ApplyRules.accept

    def follow(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        accept(self, row, transition, verb, now)
        for job in transition.then if verb is Verb.CANCEL else ():
            self.follow(job)

    patch(ApplyRules, "accept", follow)


@mutant("sqlite", "20 follow-ups")
def a_failure_in_sql_is_stored_without_its_follow_up(patch: Patch) -> None:
    patch(sqlite_apply, "insert", lambda connection, now, jobs: [])


@mutant("memory", "20 follow-ups")
def nobody_follows_up_the_jobs_of_the_dead(patch: Patch) -> None:
    async def alone(self: Reaper, orphans: Any, lost: Sequence[Any]) -> Sequence[Any]:
        return lost

    patch(Reaper, "_followed", alone)


# --- jobs that runs add -----------------------------------------------------------------------


@mutant("memory", "F6 added jobs", first=4)
def a_success_is_stored_with_one_of_its_jobs(patch: Patch) -> None:
    accept = ApplyRules.accept

    def less(self: ApplyRules, row: Any, transition: Any, verb: Verb, now: datetime) -> None:
        if verb is Verb.SUCCEED and len(transition.then) > 1:
            transition = msgspec.structs.replace(transition, then=transition.then[-1:])
        accept(self, row, transition, verb, now)

    patch(ApplyRules, "accept", less)


@mutant("memory", "F6 added jobs", first=4)
def what_a_run_added_is_stored_with_any_end(patch: Patch) -> None:
    left: dict[Any, Any] = {}
    close = Execution.with_added

    def keep(self: Execution, outcome: Any) -> Any:
        left[self.job.claim] = tuple(self.added or ())
        return close(self, outcome)

    def bring(job: Any, *args: Any, **options: Any) -> Any:
        made = decide(job, *args, **options)
        return msgspec.structs.replace(made, then=left.pop(job.claim, ()))

    patch(Execution, "with_added", keep)
    patch(decisions, "decide", bring)


@mutant("memory", "F6 added jobs", first=4)
def a_retry_keeps_the_jobs_of_the_run_before(patch: Patch) -> None:
    kept: dict[Any, Any] = {}
    close = Execution.with_added

    def remember(self: Execution, outcome: Any) -> Any:
        job, outcome = self.job.claim.job, close(self, outcome)
        if isinstance(outcome, Succeeded):
            return msgspec.structs.replace(outcome, then=(*kept.pop(job, ()), *outcome.then))
        kept[job] = tuple(self.added or ())
        return outcome

    patch(Execution, "with_added", remember)


@mutant("sqlite", "F6 added jobs", first=4)
def a_success_in_sql_is_stored_with_the_first_of_its_jobs(patch: Patch) -> None:
    insert = sqlite_insert.insert

    def some(connection: Any, now: int, jobs: Any) -> list[Inserted]:
        kept = [job for job in jobs if job.payload != b'{"number":1}']
        stored = iter(insert(connection, now, kept))
        return [next(stored) if job in kept else Inserted(job.id, created=True) for job in jobs]

    patch(sqlite_apply, "insert", some)
