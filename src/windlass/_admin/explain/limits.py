"""Why a waiting job does not start: the limits and the breaker it counts against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windlass._admin.explain.cause import Cause, few, plural, shell_command, when
from windlass._admin.explain.facts import SAMPLE_SIZE, JobFacts, LimitUsage
from windlass._core.limits.breaker import Breaker, BreakerState
from windlass._core.limits.limit import Closed, Rate, admit
from windlass._core.values.names import shown
from windlass._tasks.limits import task_of_breaker

__all__ = ["limit_causes"]

_NAMED = 20


def limit_causes(facts: JobFacts) -> Iterator[Cause]:
    """Return the closed limits: a limit that is full, a rate that is spent, a breaker that is not
    closed.

    Of a job that is not due yet only what is known to last longer: a limit that is full now says
    nothing about tomorrow.
    """
    for budget in facts.budgets:
        spec = budget.spec
        if spec.breaker is not None:
            yield from _breaker(facts, budget, spec.breaker)
        if spec.concurrency is not None:
            yield from _concurrency(facts, budget, spec.concurrency)
        if spec.rate is not None:
            yield from _rate(facts, budget, spec.rate)


def _called(budget: LimitUsage) -> str:
    use = budget.use
    return f"{use.name}, key {shown(use.key)}" if use.key else use.name


def _evidence(budget: LimitUsage) -> dict[str, Any]:
    return {"limit": budget.use.name, "key": budget.use.key}


def _concurrency(facts: JobFacts, budget: LimitUsage, most: int) -> Iterator[Cause]:
    running = budget.state.running
    if facts.job.due > facts.now or running < most:
        return
    holders = [job.id for job in facts.running if budget.counts(job)]
    unseen = len(facts.running) >= SAMPLE_SIZE and len(holders) < running
    held = f", held by {few(holders, None if unseen else 0)}" if holders else ""
    yield Cause(
        code="limit_full",
        sentence=f"Limit {_called(budget)} is full: running {running:,} of {most:,}{held}.",
        evidence={
            **_evidence(budget),
            "running": running,
            "concurrency": most,
            "held_by": holders[:_NAMED],
        },
        fix=f"Wait for one of them to end, or allow more: "
        f"{shell_command('limits', 'set', budget.use.name, '--concurrency', str(most + 1))}",
    )


def _rate(facts: JobFacts, budget: LimitUsage, rate: Rate) -> Iterator[Cause]:
    spent, cost = budget.state.spent_until, budget.use.cost
    answer = admit(rate, spent, cost=cost, now=facts.now)
    if not isinstance(answer, Closed) or answer.open_at <= facts.job.due:
        return
    # Jobs ahead of it take tokens from the same bucket first.
    ahead = [job for job in facts.line.ahead if budget.counts(job)]
    owed = sum(budget.cost(job) for job in ahead)
    until = answer.open_at + rate.span(owed)
    line = f", and {plural(len(ahead), 'job')} ahead of it" if ahead else ""
    key = ("--key", budget.use.key) if budget.use.key else ()
    yield Cause(
        code="rate_spent",
        sentence=f"The rate of limit {_called(budget)} is used up: the next job may start "
        f"{when(answer.open_at, facts.now)}{line}.",
        evidence={
            **_evidence(budget),
            "n": rate.n,
            "per": rate.per.total_seconds(),
            "burst": rate.burst,
            "cost": cost,
            "spent_until": spent,
            "refills_at": answer.open_at,
            "ahead": len(ahead),
        },
        until=until,
        fix=f"Wait, or refill it: {shell_command('limits', 'reset', budget.use.name, *key)}",
    )


def _breaker(facts: JobFacts, budget: LimitUsage, breaker: Breaker) -> Iterator[Cause]:
    state = budget.state.breaker or BreakerState()
    if not state.holds(breaker):
        return
    job, now, task = facts.job, facts.now, task_of_breaker(budget.spec)
    until, running = state.open_until, budget.state.running
    evidence = {
        "task": task,
        "failures": state.failures,
        "opened": state.opened,
        "open_until": until,
        "running": running,
    }
    row = f"{plural(state.failures, 'failure')} in a row"
    fix = f"Fix the failure, then close it: {shell_command('breakers', 'reset', task)}"
    if until is not None and until > max(now, job.due):
        yield Cause(
            code="breaker_open",
            sentence=f"The breaker of task {task} is open after {row}: no job of it starts before "
            f"the next trial {when(until, now)}.",
            evidence=evidence,
            until=until,
            fix=fix,
        )
    elif job.due <= now and (until is None or until <= now):
        holders = [one.id for one in facts.running if budget.counts(one)]
        before = any(budget.counts(one) for one in facts.line.ahead)
        trial = f"{few(holders)} runs now" if holders else "one runs next"
        yield Cause(
            code="breaker_trial",
            sentence=f"The breaker of task {task} is on trial after {row}: one job at a time runs "
            f"until one succeeds, and {trial}.",
            evidence={**evidence, "held_by": holders[:_NAMED]},
            until=None if running or before else now,
            fix=fix,
        )
