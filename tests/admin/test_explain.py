"""``app.admin.jobs.explain``: every cause on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.admin.fixtures import admin_of
from windlass._admin.explain import capabilities, facts
from windlass._core.job.job import AttemptError, FollowUp, LimitUse, Progress
from windlass._core.job.outcome import (
    Cancelled,
    GaveUp,
    Lost,
    Misfit,
    Missing,
    Raised,
    Snoozed,
)
from windlass._core.job.unique import Window
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import Duty
from windlass._system.seams import new_job_id
from windlass._tasks.limits import breaker_name
from windlass.admin import Cause, Explanation
from windlass.errors import JobNotFound
from windlass.testing._clock import START, VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    SECOND,
    a_job,
    a_worker,
    add,
    claim,
    claim_one,
    discard,
    enlist,
    happened,
    keyed,
    limited,
    requeue,
    started,
    succeeded,
    throttled,
)


@pytest.fixture(autouse=True)
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks is no newer than the workers of these tests."""
    monkeypatch.setattr(capabilities, "__version__", "0")


async def explain(storage: Storage, job: str) -> Explanation:
    told = await admin_of(storage).jobs.explain(job)
    assert told.causes
    for cause in told.causes:
        assert cause.sentence.endswith(".")
        assert msgspec.json.encode(cause.evidence)  # what cannot be told to a machine is no use
    return told


def codes(told: Explanation) -> list[str]:
    return [cause.code for cause in told.causes]


async def why(storage: Storage, job: str, *wanted: str) -> Cause:
    """The only cause there is, or those wanted and no others; the first of them."""
    told = await explain(storage, job)
    assert codes(told) == list(wanted)
    return told.causes[0]


async def register(storage: Storage, worker: str, **said: Any) -> None:
    await storage.workers.register(msgspec.structs.replace(a_worker(worker), **said))


# --- its time -------------------------------------------------------------------------------------


async def test_a_job_for_later_says_when(storage: Storage) -> None:
    await enlist(storage)
    (job,) = await add(storage, a_job(delay=HOUR))
    told = await explain(storage, job)
    (cause,) = told.causes
    assert (told.state, cause.code) == ("scheduled", "scheduled")
    assert cause.sentence == ("It is scheduled: due at 2030-01-01 01:00:00 UTC, in 1 h.")
    assert cause.until == told.expected_at == START + HOUR
    assert cause.evidence["due"] == START + HOUR
    assert f"windlass jobs run-now {job}" in cause.fix


async def test_a_retry_says_which_error_it_follows(storage: Storage) -> None:
    job = await started(storage)
    await happened(storage, job, Raised(OOPS))
    told = await explain(storage, job.claim.job)
    (cause,) = told.causes
    assert (told.state, cause.code) == ("retrying", "retry_due")
    assert "Attempt 1 of 5 failed after ValueError: boom." in cause.sentence
    assert cause.until == told.expected_at == START + MINUTE
    assert cause.evidence["error_kind"] == "ValueError"


async def test_a_snoozed_job_says_that_its_handler_asked_for_time(storage: Storage) -> None:
    job = await started(storage)
    await happened(storage, job, Snoozed(HOUR))
    cause = await why(storage, job.claim.job, "snoozed")
    assert cause.until == START + HOUR


async def test_a_throttled_job_says_so(storage: Storage) -> None:
    job = await started(storage)
    await throttled(storage, job, delay=HOUR)
    cause = await why(storage, job.claim.job, "throttled")
    assert cause.until == START + HOUR
    assert cause.evidence["throttled"] == 1


async def test_a_job_that_expires_soon_says_when(storage: Storage) -> None:
    await enlist(storage)
    (job,) = await add(storage, a_job(expires=MINUTE))
    told = await explain(storage, job)
    assert codes(told) == ["ready", "expires_soon"]
    assert told.causes[1].until == START + MINUTE


async def test_a_job_that_expires_before_it_is_due_is_not_expected(storage: Storage) -> None:
    await enlist(storage)
    (job,) = await add(storage, a_job(delay=2 * HOUR, expires=HOUR))
    told = await explain(storage, job)
    assert codes(told) == ["scheduled", "expires_soon"]
    assert told.expected_at is None


async def test_an_expired_job_says_that_it_will_be_discarded(
    storage: Storage, clock: VirtualClock
) -> None:
    await register(storage, "w1", lease=HOUR)
    (job,) = await add(storage, a_job(expires=MINUTE))
    clock.advance(2 * MINUTE)
    told = await explain(storage, job)
    assert codes(told) == ["expired"]
    assert told.expected_at is None


# --- its queue ------------------------------------------------------------------------------------


async def test_a_paused_queue_is_named(storage: Storage) -> None:
    await enlist(storage)
    (job,) = await add(storage, a_job())
    await storage.admin.pause("default")
    told = await explain(storage, job)
    (cause,) = told.causes
    assert cause.sentence == "Queue default is paused: no job of it starts until it is resumed."
    assert cause.fix == "Resume it: `windlass queues resume default`"
    assert told.expected_at is None


async def test_a_queue_that_cools_down_says_until_when(storage: Storage) -> None:
    first = await started(storage)
    (job,) = await add(storage, a_job())
    await throttled(storage, first, MINUTE)
    told = await explain(storage, job)
    assert codes(told) == ["queue_cooling"]
    assert told.causes[0].until == told.expected_at == START + MINUTE
    assert "windlass queues warm default" in told.causes[0].fix


async def test_a_full_queue_says_which_jobs_run(storage: Storage) -> None:
    first = await started(storage)
    new = QueueSettings(max_running=1)
    assert await storage.queues.change("default", new, old=QueueSettings())
    (job,) = await add(storage, a_job())
    cause = await why(storage, job, "queue_full")
    assert first.claim.job in cause.sentence
    assert cause.evidence["held_by"] == [first.claim.job]
    assert (cause.evidence["running"], cause.evidence["max_running"]) == (1, 1)


# --- limits ---------------------------------------------------------------------------------------


async def test_a_full_limit_says_which_key_and_who_holds_it(storage: Storage) -> None:
    await enlist(storage)
    await storage.limits.define([LimitSpec(name="tenant", concurrency=1)])
    holder, job, other = await add(
        storage, limited("tenant:acme"), limited("tenant:acme"), limited("tenant:else")
    )
    assert (await claim_one(storage)).claim.job == holder
    told = await explain(storage, job)
    (cause,) = told.causes
    assert cause.code == "limit_full"
    assert cause.sentence == (
        f"Limit tenant, key 'acme' is full: running 1 of 1, held by {holder}."
    )
    assert cause.evidence["held_by"] == [holder]
    assert cause.fix.endswith("`windlass limits set tenant --concurrency 2`")
    assert told.expected_at is None
    assert (await why(storage, other, "ready")).until == START


async def test_a_spent_rate_says_when_it_refills_and_counts_those_before(storage: Storage) -> None:
    await enlist(storage)
    await storage.limits.define([LimitSpec(name="api", rate=Rate(6, per=60))])
    first, second, third = await add(storage, *(limited("api") for _ in range(3)))
    assert (await claim_one(storage)).claim.job == first
    assert (await why(storage, second, "rate_spent")).until == START + 10 * SECOND
    told = await explain(storage, third)
    (cause,) = told.causes
    assert cause.evidence["refills_at"] == START + 10 * SECOND
    assert cause.until == told.expected_at == START + 20 * SECOND
    assert "and 1 job ahead of it" in cause.sentence


async def broken(storage: Storage, failures: int = 2) -> Sequence[str]:
    """A breaker that is open, and two jobs behind it."""
    await register(storage, "w1", lease=HOUR)
    name = breaker_name("conform")
    breaker = Breaker(failures, cool_down=MINUTE)
    await storage.limits.define([LimitSpec(name=name, breaker=breaker)])
    await add(storage, *(limited(name) for _ in range(failures)))
    for job in await claim(storage, failures):
        await happened(storage, job, GaveUp(OOPS))
    return await add(storage, limited(name), limited(name))


async def test_an_open_breaker_says_until_when(storage: Storage) -> None:
    job, _ = await broken(storage)
    told = await explain(storage, job)
    (cause,) = told.causes
    assert cause.code == "breaker_open"
    assert "The breaker of task conform is open after 2 failures in a row" in cause.sentence
    assert cause.until == told.expected_at == START + MINUTE
    assert cause.fix.endswith("`windlass breakers reset conform`")


async def test_a_breaker_on_trial_says_which_job_is_tried(
    storage: Storage, clock: VirtualClock
) -> None:
    first, second = await broken(storage)
    clock.advance(2 * MINUTE)
    assert (await why(storage, first, "breaker_trial")).until == clock.now()
    assert (await why(storage, second, "breaker_trial")).until is None
    assert (await claim_one(storage)).claim.job == first
    cause = await why(storage, second, "breaker_trial")
    assert f"{first} runs now" in cause.sentence
    assert cause.evidence["held_by"] == [first]


# --- workers --------------------------------------------------------------------------------------


async def test_no_worker_at_all_is_said(storage: Storage) -> None:
    (job,) = await add(storage, a_job())
    cause = await why(storage, job, "no_worker")
    assert "no worker is live" in cause.sentence
    assert "windlass worker MODULE:APP --queue default" in cause.fix


async def test_workers_of_other_queues_are_named(storage: Storage) -> None:
    await register(storage, "w1", queues=["mail", "reports"])
    (job,) = await add(storage, a_job())
    cause = await why(storage, job, "no_worker")
    assert "the live workers serve mail, reports" in cause.sentence
    assert cause.evidence["elsewhere"] == {"w1": ["mail", "reports"]}


async def test_a_worker_that_fell_silent_does_not_count(
    storage: Storage, clock: VirtualClock
) -> None:
    await enlist(storage)
    (job,) = await add(storage, a_job())
    clock.advance(MINUTE)
    cause = await why(storage, job, "no_worker")
    assert "its last worker has sent no heartbeat for 1 m" in cause.sentence
    assert cause.evidence["silent"][0]["worker"] == "w1"


async def test_workers_that_take_nothing_new_are_named_with_the_way_back(storage: Storage) -> None:
    await enlist(storage, "w1", "w2")
    (job,) = await add(storage, a_job())
    await storage.workers.assign(["w1"], Duty.QUIET)
    assert "workers_quiet" not in {cause.code for cause in (await explain(storage, job)).causes}
    await storage.workers.assign(["w2"], Duty.STOP)
    cause = await why(storage, job, "workers_quiet")
    assert "All 2 workers of queue default are paused or stopping" in cause.sentence
    assert cause.evidence["workers"] == {"w2": "stop", "w1": "quiet"}
    assert "windlass workers resume w1" in cause.fix
    await storage.workers.assign(["w1"], Duty.STOP)
    assert "windlass worker MODULE:APP" in (await why(storage, job, "workers_quiet")).fix


async def test_an_unknown_task_is_named_with_its_error(storage: Storage) -> None:
    job = await started(storage)
    unknown = AttemptError("UnknownTask", "No task named 'conform' is registered.")
    await happened(storage, job, Missing(unknown))
    told = await explain(storage, job.claim.job)
    (cause,) = told.causes
    assert cause.code == "unknown_task"
    assert "do not have task conform" in cause.sentence
    assert "UnknownTask: No task named 'conform'" in cause.sentence
    assert cause.evidence["workers"] == ["w1"]
    assert told.expected_at is None


async def test_arguments_that_do_not_fit_are_named_with_the_way_out(
    storage: Storage, clock: VirtualClock
) -> None:
    job = await started(storage)
    await happened(storage, job, Raised(OOPS, timedelta(0)))
    why_not = AttemptError("windlass.errors.PayloadError", "unknown field `loud`")
    await happened(storage, await claim_one(storage), Misfit(why_not))
    clock.advance(20)
    told = await explain(storage, job.claim.job)
    (cause,) = told.causes
    assert cause.code == "misfit"
    assert "Its arguments do not fit task conform" in cause.sentence
    assert "(Misfit: unknown field `loud`)" in cause.sentence
    assert cause.evidence["missed_why"] == "Misfit: unknown field `loud`"
    assert "deploy workers before producers" in cause.fix
    assert told.expected_at is None


async def test_slots_that_are_kept_for_a_queue_are_counted_by_queue(storage: Storage) -> None:
    start = msgspec.structs.replace(
        a_worker("w1"), queues=("default", "mail"), slots=10, pools={"default": 2, "mail": 8}
    )
    await storage.workers.register(start)
    *_, waiting = await add(storage, *(a_job() for _ in range(3)))
    assert len(await claim(storage, 2)) == 2
    cause = await why(storage, waiting, "slots_busy")
    assert "1 worker of queue default with 2 slots, all busy" in cause.sentence
    assert cause.evidence["workers"] == {"w1": {"slots": 2, "running": 2}}
    (mail,) = await add(storage, a_job(queue="mail"))
    free = await why(storage, mail, "ready")
    assert "Busy slots of queue mail: 0 of 8" in free.sentence


async def test_no_time_is_promised_where_the_line_was_not_counted_to_its_end(
    storage: Storage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "SAMPLE_SIZE", 20)
    await register(storage, "w1", slots=1)
    jobs = await add(storage, *(a_job() for _ in range(60)))
    for _ in range(10):
        clock.advance(SECOND)
        await succeeded(storage, await claim_one(storage))
    await claim_one(storage)
    told = await explain(storage, jobs[-1])
    assert told.expected_at is None
    (cause,) = told.causes
    assert (cause.code, cause.until) == ("slots_busy", None)
    assert "20 ready jobs or more" in cause.sentence
    assert "it starts not before" in cause.sentence
    assert cause.evidence["estimated_wait"] is None
    assert cause.evidence["least_wait"] > 0


async def test_a_job_that_must_run_alone_waits_for_an_empty_worker(
    storage: Storage, clock: VirtualClock
) -> None:
    await register(storage, "w1", lease=HOUR)
    (job,) = await add(storage, a_job())
    while not (await storage.admin.get([job]))[0].solo:  # type: ignore[union-attr]
        await happened(storage, await claim_one(storage), Lost(OOPS))
        clock.advance(2 * MINUTE)
    assert "w1 is idle" in (await why(storage, job, "solo")).sentence
    await add(storage, a_job())
    assert await claim(storage)
    told = await explain(storage, job)
    assert codes(told) == ["solo"]
    assert "all of them are busy" in told.causes[0].sentence
    assert told.causes[0].evidence["workers"] == {"w1": {"slots": 10, "running": 1}}
    assert told.expected_at is None


async def test_busy_slots_tell_the_place_in_line_and_the_wait(
    storage: Storage, clock: VirtualClock
) -> None:
    await register(storage, "w1", slots=1, lease=HOUR)
    await add(storage, *(a_job() for _ in range(7)))
    for _ in range(3):
        done = await claim_one(storage)
        clock.advance(10)
        await succeeded(storage, done)
    assert await claim(storage)
    (job,) = await add(storage, a_job())
    (urgent,) = await add(storage, a_job(priority=-1))
    told = await explain(storage, job)
    (cause,) = told.causes
    assert cause.code == "slots_busy"
    # Three that are older and one that is more urgent; three ended in half a minute.
    assert cause.sentence == (
        "No slot is free: 1 worker of queue default with 1 slot, all busy. Ahead of it: "
        "4 ready jobs. At the recent pace (3 runs in 30 s) it starts in about 50 s."
    )
    assert cause.evidence["ahead_is_exact"] is True
    assert cause.evidence["workers"] == {"w1": {"slots": 1, "running": 1}}
    assert told.expected_at == clock.now() + timedelta(seconds=50)
    assert (await explain(storage, urgent)).causes[0].evidence["ahead"] == 0


async def test_busy_slots_without_a_pace_make_no_promise(storage: Storage) -> None:
    await register(storage, "w1", slots=1)
    job, second = await add(storage, a_job(), a_job())
    assert (await claim_one(storage)).claim.job == job
    told = await explain(storage, second)
    assert "the wait is unknown" in told.causes[0].sentence
    assert told.expected_at is None


async def test_a_long_line_is_counted_up_to_a_bound(storage: Storage) -> None:
    await register(storage, "w1", slots=1)
    await add(storage, *(a_job() for _ in range(202)))
    assert await claim(storage)
    (job,) = await add(storage, a_job())
    cause = await why(storage, job, "slots_busy")
    assert "Ahead of it: 200 ready jobs or more." in cause.sentence
    assert (cause.evidence["ahead"], cause.evidence["ahead_is_exact"]) == (200, False)


async def test_workers_of_different_versions_are_a_remark(storage: Storage) -> None:
    await register(storage, "w1", version="1.0")
    await register(storage, "w2", version="1.1")
    (job,) = await add(storage, a_job())
    told = await explain(storage, job)
    assert codes(told) == ["ready", "versions_differ"]
    assert told.causes[1].evidence["versions"] == {"w1": "1.0", "w2": "1.1"}
    assert "1.0, 1.1" in told.causes[1].sentence


async def test_workers_older_than_a_release_in_use_are_a_remark(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(storage, "w1", version="1.9.0", slots=3)
    (job,) = await add(storage, a_job())
    assert codes(await explain(storage, job)) == ["ready"]

    await register(storage, "w2", version="1.10.0", queues=["other"])
    told = await explain(storage, job)
    assert codes(told) == ["ready", "workers_too_old"]
    assert "runs Windlass 1.9.0 or older, and 1.10.0 is in use" in told.causes[1].sentence
    assert told.causes[1].evidence == {"versions": {"w1": "1.9.0"}, "newest": "1.10.0"}

    monkeypatch.setattr(capabilities, "__version__", "2.0")  # whoever asks is newer still
    assert (await explain(storage, job)).causes[1].evidence["newest"] == "2.0"


async def test_a_task_that_every_live_worker_lacks_is_explained_before_a_claim(
    storage: Storage,
) -> None:
    await register(storage, "w1", tasks=["other"], slots=1)
    (job,) = await add(storage, a_job(delay=HOUR))
    told = await explain(storage, job)
    assert codes(told) == ["unknown_task", "scheduled"]
    assert told.causes[0].sentence == (
        "Live workers serve queue default, but none of them had task conform when it started."
    )
    assert told.causes[0].evidence["tasks"] == {"w1": ["other"]}
    assert "imports=[…]" in told.causes[0].fix
    assert told.expected_at is None

    await register(storage, "w2", tasks=["conform"], queues=["mail"])
    assert "Workers of mail have it." in (await explain(storage, job)).causes[0].sentence

    await register(storage, "w3")  # of a release that does not say what it can run
    assert codes(await explain(storage, job)) == ["scheduled"]
    await storage.workers.leave("w3", [])
    await register(storage, "w4", tasks=["conform", "other"])
    assert codes(await explain(storage, job)) == ["scheduled"]


async def test_a_clock_that_is_off_is_a_remark(storage: Storage) -> None:
    await register(storage, "w1", clock=START + 3 * MINUTE)
    await register(storage, "w2", clock=START + SECOND)
    (job,) = await add(storage, a_job())
    told = await explain(storage, job)
    assert codes(told) == ["ready", "clock_skew"]
    assert "worker w1 on host was 3 m ahead of the store's" in told.causes[1].sentence
    assert told.causes[1].evidence["skew"] == 180.0


async def test_the_operator_who_paused_a_queue_is_named(storage: Storage) -> None:
    await enlist(storage)
    (job,) = await add(storage, a_job())
    await admin_of(storage).acting("ada\x1b[31m").queues.pause("default")
    cause = await why(storage, job, "queue_paused")
    assert "is paused, by ada\\x1b[31m at 2030-01-01 00:00:00 UTC, 0 ms ago:" in cause.sentence
    assert cause.evidence["since"] == START


async def test_no_secret_is_explained(storage: Storage) -> None:
    await storage.limits.define([LimitSpec(name="one", concurrency=1)])
    payload = b'{"card":"canary-4111"}'
    use = (LimitUse("one", "canary-4111"),)
    new = a_job(payload=payload, limits=use, tags=("secret:card",))
    first, second = await add(storage, new, msgspec.structs.replace(new, id=new_job_id()))
    await enlist(storage)
    run = await claim_one(storage)
    for job in (first, second):
        told = await explain(storage, job)
        assert "canary" not in repr(told)
    oops = AttemptError("ValueError", "canary-4111 refused", "canary-4111")
    await happened(storage, run, GaveUp(oops))
    assert "canary" not in repr(await explain(storage, first))


async def test_a_job_that_nothing_holds_is_expected_now(storage: Storage) -> None:
    await enlist(storage)
    (job,) = await add(storage, a_job())
    told = await explain(storage, job)
    assert (told.state, codes(told)) == ("ready", ["ready"])
    assert told.expected_at == told.at == START
    assert "Busy slots of queue default: 0 of 10." in told.causes[0].sentence


# --- several at once ------------------------------------------------------------------------------


async def test_all_causes_are_named_and_the_one_without_an_end_comes_first(
    storage: Storage,
) -> None:
    await storage.limits.define([LimitSpec(name="api", rate=Rate(1, per=60))])
    first = await started(storage, limited("api"))
    (job,) = await add(storage, limited("api"))
    await throttled(storage, first, HOUR)
    await storage.admin.pause("default")
    told = await explain(storage, job)
    assert codes(told) == ["queue_paused", "queue_cooling", "rate_spent"]
    await storage.admin.resume("default")
    assert (await explain(storage, job)).expected_at == START + HOUR


async def test_a_cause_that_ends_before_the_due_time_does_not_hold_a_job(storage: Storage) -> None:
    await storage.limits.define([LimitSpec(name="one", concurrency=1)])
    await started(storage, limited("one"))
    other = await claim_after(storage)
    (job,) = await add(storage, limited("one", delay=HOUR))
    await throttled(storage, other, MINUTE)
    assert codes(await explain(storage, job)) == ["scheduled"]


async def claim_after(storage: Storage) -> Any:
    await add(storage, a_job())
    return await claim_one(storage)


# --- at work --------------------------------------------------------------------------------------


async def test_a_running_job_says_where_and_how_far_it_is(
    storage: Storage, clock: VirtualClock
) -> None:
    job = await started(storage, a_job(timeout=MINUTE))
    await storage.jobs.report([(job.claim, Progress(0.4, "resizing\x1b[2J"))])
    clock.advance(5)
    told = await explain(storage, job.claim.job)
    (cause,) = told.causes
    assert (told.state, cause.code) == ("running", "running")
    assert cause.sentence == (
        "It has run for 5 s, since 2030-01-01 00:00:00 UTC, on worker w1 (host, process 1), "
        "attempt 1 of 5. It reports 40% done, resizing\\x1b[2J. "
        "It times out at 2030-01-01 00:01:00 UTC, in 55 s."
    )
    assert cause.until == START + MINUTE
    assert told.expected_at is None


async def test_a_requested_cancel_is_said(storage: Storage) -> None:
    job = await started(storage)
    assert await storage.jobs.cancel([job.claim.job]) == [CancelAnswer.REQUESTED]
    first = await why(storage, job.claim.job, "running", "cancel_requested")
    assert f"windlass jobs cancel {job.claim.job}" in first.fix


async def test_a_running_job_says_that_its_worker_is_silent(
    storage: Storage, clock: VirtualClock
) -> None:
    job = await started(storage)
    clock.advance(45)
    told = await explain(storage, job.claim.job)
    assert codes(told) == ["running", "worker_silent"]
    assert "sent no heartbeat for 45 s, and its lease is 30 s" in told.causes[1].sentence


async def test_a_running_job_says_that_its_worker_is_dead(storage: Storage) -> None:
    job = await started(storage)
    await storage.workers.bury(["w1"])
    told = await explain(storage, job.claim.job)
    assert codes(told) == ["running", "worker_gone"]
    assert "w1 is dead" in told.causes[1].sentence


# --- at its end -----------------------------------------------------------------------------------


async def test_a_job_that_succeeded_says_when(storage: Storage, clock: VirtualClock) -> None:
    job = await started(storage)
    clock.advance(2)
    await succeeded(storage, job)
    cause = await why(storage, job.claim.job, "succeeded")
    assert cause.sentence == "It succeeded at 2030-01-01 00:00:02 UTC, 0 ms ago, after 2 s."
    assert cause.fix == ""


async def test_a_failed_job_says_why_and_what_follows(storage: Storage) -> None:
    job = await started(storage, a_job(on_failure=FollowUp(task="clean_up")))
    await happened(storage, job, GaveUp(AttemptError("builtins.ValueError", "bo\nom")))
    cause = await why(storage, job.claim.job, "failed")
    assert "attempt 1 of 5, with ValueError: bo." in cause.sentence
    assert cause.evidence["error_message"] == "bo\nom"
    assert cause.evidence["on_failure"] == "clean_up"
    assert f"windlass jobs requeue {job.claim.job}" in cause.fix


async def test_a_cancelled_and_a_discarded_job_say_so(storage: Storage) -> None:
    job = await started(storage)
    await happened(storage, job, Cancelled())
    assert "It was cancelled at" in (await why(storage, job.claim.job, "cancelled")).sentence
    failed = await claim_after(storage)
    await happened(storage, failed, GaveUp(OOPS))
    await discard(storage, failed.claim.job, reason="not needed")
    cause = await why(storage, failed.claim.job, "discarded")
    assert cause.sentence.endswith(": not needed.")


async def test_a_requeued_job_is_not_explained_by_its_past(storage: Storage) -> None:
    job = await started(storage)
    await happened(storage, job, GaveUp(OOPS))
    await requeue(storage, job.claim.job)
    told = await explain(storage, job.claim.job)
    assert (told.state, codes(told)) == ("ready", ["ready"])


@pytest.mark.parametrize("window", [Window.UNTIL_FINISHED, Window.FOR_A_TIME])
async def test_a_held_key_says_why_a_call_was_answered_with_this_job(
    storage: Storage, window: Window
) -> None:
    await enlist(storage)
    (job,) = await add(storage, keyed("user:42", window))
    (answer,) = await storage.jobs.insert([keyed("user:42", window)])
    assert (answer.id, answer.created) == (job, False)
    told = await explain(storage, job)
    assert codes(told) == ["ready", "key_held"]
    assert "unique key 'user:42'" in told.causes[1].sentence
    await succeeded(storage, await claim_one(storage))
    still = ["key_held"] if window is Window.FOR_A_TIME else []
    assert codes(await explain(storage, job)) == ["succeeded", *still]


async def test_an_unknown_id_is_refused(storage: Storage) -> None:
    with pytest.raises(JobNotFound):
        await explain(storage, new_job_id())


async def test_explaining_changes_nothing(storage: Storage) -> None:
    await enlist(storage)
    (job,) = await add(storage, a_job())
    before = await storage.admin.get([job]), await storage.workers.workers()
    await explain(storage, job)
    assert (await storage.admin.get([job]), await storage.workers.workers()) == before
