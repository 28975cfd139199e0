"""The accounting: after every kill the store must tell one story, and the effects the same one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from tests.crash.harness.effects import END, START, Effect
from tests.crash.harness.store import (
    CANCELLED,
    DISCARDED,
    FAILED,
    SUCCEEDED,
    Ended,
    Store,
    StoredJob,
    StoredRollup,
    counts_of,
)
from windlass._core.stats.rollup import bucket_of

_MINUTE = 60_000_000
_REFUNDED = {"release", "snooze", "throttle"}

Key = tuple[int, str, str, str]


def audit(
    store: Store, effects: Collection[Effect], acknowledged: Collection[str], *, unknown: int = 0
) -> None:
    """Everything is finished, once, and every count agrees.

    ``unknown``: how many jobs may be there whose producer did not live to hear of them.
    """
    assert store.is_sound()
    jobs = store.jobs()
    histories: dict[int, list[Ended]] = defaultdict(list)
    for ended in store.history():
        histories[ended.seq].append(ended)
    _everything_acknowledged_is_there(jobs, acknowledged, unknown)
    for job in jobs:
        _it_ended_once(job, histories[job.seq])
    _effects_agree(jobs, effects)
    _rollups_equal_a_recount(store, jobs, histories)
    _nobody_is_left(store)
    assert store.held_keys() == [], "keys of jobs that are finished"


def _everything_acknowledged_is_there(
    jobs: Collection[StoredJob], acknowledged: Collection[str], unknown: int
) -> None:
    stored = {job.id for job in jobs}
    assert len(set(acknowledged)) == len(acknowledged)
    lost = set(acknowledged) - stored
    assert not lost, f"{len(lost)} acknowledged and lost: {sorted(lost)[:20]}"
    assert len(stored - set(acknowledged)) <= unknown, "nobody has enqueued these"


def _it_ended_once(job: StoredJob, history: Collection[Ended]) -> None:
    """Every claim that was ever given out was ended, each by exactly one accepted finish."""
    assert job.state in {SUCCEEDED, FAILED, CANCELLED, DISCARDED}, f"not finished: {job}"
    ended = [claim.claim_number for claim in history]
    if job.state == SUCCEEDED:
        ended.append(job.claim_number)
    assert sorted(ended) == list(range(1, job.claim_number + 1)), (job, history)
    assert (job.ended_number or 0) == job.claim_number, job
    refunded = sum(claim.verb in _REFUNDED for claim in history)
    assert job.attempt == job.claim_number - refunded, (job, history)


def _effects_agree(jobs: Collection[StoredJob], effects: Collection[Effect]) -> None:
    """No claim was run twice, and what succeeded was run to its end under its last claim."""
    began = Counter(effect.run for effect in effects if effect.what == START)
    assert not [run for run, times in began.items() if times > 1], "one claim was run twice"
    ended = {effect.run for effect in effects if effect.what == END}
    claims = {job.id: job.claim_number for job in jobs}
    for ran, number in began:
        assert 1 <= number <= claims[ran], f"job {ran} ran under claim {number}: never given out"
    for job in jobs:
        if job.state == SUCCEEDED and job.task != "crash.noop":
            assert (job.id, job.claim_number) in ended, f"succeeded and not run: {job}"
            assert job.result == str(job.claim_number).encode(), job


def _rollups_equal_a_recount(
    store: Store, jobs: Collection[StoredJob], histories: dict[int, list[Ended]]
) -> None:
    rollups = [rollup for rollup in store.rollups() if _ends_of(rollup)]
    by_worker = all(rollup.worker for rollup in rollups)
    verbs: dict[Key, Counter[str]] = defaultdict(Counter)
    runs: dict[Key, Counter[str]] = defaultdict(Counter)
    for (minute, queue, task, worker), verb, lasted in _finishes(jobs, histories):
        key = (minute, queue, task, worker if by_worker else "")
        verbs[key][verb] += 1
        runs[key][str(bucket_of(lasted))] += 1
    stored = {(r.minute, r.queue, r.task, r.worker): r for r in rollups}
    assert {key: _ends_of(rollup) for key, rollup in stored.items()} == verbs
    assert {key: counts_of(rollup.run) for key, rollup in stored.items()} == runs
    for key, rollup in stored.items():
        assert counts_of(rollup.wait).total() == verbs[key].total()


def _ends_of(rollup: StoredRollup) -> Counter[str]:
    """Count what ended. Enqueues that met a stored job are counted beside them."""
    counts = counts_of(rollup.counts)
    del counts["coalesce"]
    return counts


def _finishes(
    jobs: Collection[StoredJob], histories: dict[int, list[Ended]]
) -> Iterator[tuple[Key, str, int]]:
    for job in jobs:
        for claim in histories[job.seq]:
            key = (_minute(claim.ended_at), job.queue, job.task, claim.worker)
            yield key, claim.verb, claim.ended_at - claim.started_at
        if job.state == SUCCEEDED:
            assert job.finished_at is not None
            assert job.started_at is not None
            assert job.worker is not None
            key = (_minute(job.finished_at), job.queue, job.task, job.worker)
            yield key, "succeed", job.finished_at - job.started_at


def _minute(instant: int) -> int:
    return instant - instant % _MINUTE


def _nobody_is_left(store: Store) -> None:
    """Everybody who worked has left or is buried."""
    assert not [worker for worker in store.workers() if worker.state == "live"]
