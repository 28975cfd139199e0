"""Keys made of secrets: what people see of them gives nothing away, and finds them all the same."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator

import msgspec
import pytest

from windlass import Limit, Rate, Secret, Unique, Windlass
from windlass._admin.copy.copy import copy
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId
from windlass._core.values.hidden_keys import mask_digests
from windlass._storage.protocol.actions import Cancel, RunNow
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.errors import InvalidArgument, JobFailed, KeyConflict

PIN = "493817"
DIGESTS = {
    hashlib.sha256(PIN.encode()).hexdigest()[:20],
    hashlib.sha256(b'{"pin":"%s"}' % PIN.encode()).hexdigest(),
}
TRIES = Limit("tries", rate=Rate(1, per=60), key="user-{pin}")


def shop(url: str = "memory://") -> Windlass:
    app = Windlass(url)

    @app.task(name="check", unique=True, limits=[TRIES])
    async def check(pin: Secret[str]) -> None: ...

    @app.task(name="unlock", unique=Unique(key="{pin}", on_conflict="raise"))
    async def unlock(pin: Secret[str]) -> None: ...

    return app


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    async with shop() as app:
        yield app


async def filled(app: Windlass) -> tuple[str, str]:
    tasks = {task.name: task for task in app.tasks}
    jobs = [await tasks[name].enqueue(PIN) for name in ("check", "unlock")]
    return jobs[0].id, jobs[1].id


async def seen(app: Windlass) -> str:
    """Everything that people can see of the two jobs."""
    check, unlock = await filled(app)
    admin = app.admin
    found = list(await admin.jobs.find())
    told: list[object] = [
        found,
        await admin.limits.list(),
        [await admin.jobs.get(job.id) for job in found],
    ]
    told += [await admin.jobs.explain(check), await admin.jobs.explain(unlock)]
    with pytest.raises(KeyConflict) as conflict:
        await filled(app)
    storage = await parts_of(app).storage()
    (stored,) = await storage.admin.get([JobId(check)])
    assert stored is not None
    await storage.limits.drain("tries", stored.limits[0].key)
    ((budget,),) = [limit.budgets for limit in await admin.limits.list()]
    await admin.limits.drain("tries", budget.key)
    told += [await admin.limits.list()]
    told += [await admin.jobs.explain(check), str(conflict.value), await admin.audit.list()]
    return repr(told) + msgspec.json.encode(told).decode()


async def test_a_six_digit_pin_is_not_found_from_what_is_shown(app: Windlass) -> None:
    shown = (await seen(app)).replace("\\", "")
    assert "secret:@" in shown
    assert "arguments:@" in shown
    assert PIN not in shown
    for digest in DIGESTS:
        assert digest not in shown
        assert digest[:12] not in shown


async def test_each_installation_shows_another_key_and_always_the_same(app: Windlass) -> None:
    async with shop() as other:
        keys = [await _keys(one) for one in (app, other, app)]
    assert keys[0] == keys[2]
    assert not {*keys[0]} & {*keys[1]}


async def _keys(app: Windlass) -> list[str]:
    if not await app.admin.jobs.find():
        await filled(app)
    return [job.key or "" for job in await app.admin.jobs.find()]


async def test_a_key_as_it_is_shown_finds_its_jobs_and_a_guess_does_not(app: Windlass) -> None:
    check, _ = await filled(app)
    (job,) = [job for job in await app.admin.jobs.find() if job.id == check]
    (stored,) = await (await parts_of(app).storage()).admin.get([job.id])
    assert stored is not None
    assert stored.key != job.key
    assert [one.id for one in await app.admin.jobs.find(JobFilter(key=job.key))] == [check]
    assert (await app.admin.jobs.count(JobFilter(key=job.key))).number == 1
    assert list(await app.admin.jobs.find(JobFilter(key=stored.key))) == []
    assert (await app.admin.jobs.count(JobFilter(key=stored.key))).number == 0
    other = msgspec.structs.replace(JobFilter(key=job.key), task="unlock")
    assert list(await app.admin.jobs.find(other)) == []
    for order, most in ((RunNow(), None), (RunNow(), 5), (Cancel(), None)):
        report = await app.admin.jobs.bulk(order, JobFilter(key=job.key), most=most)
        assert (report.matched, report.done) == (1, 1)


async def test_a_budget_is_filled_by_its_key_as_it_is_shown(app: Windlass) -> None:
    check, _ = await filled(app)
    storage = await parts_of(app).storage()
    (stored,) = await storage.admin.get([(await app.admin.jobs.get(check)).id])
    assert stored is not None
    await storage.limits.drain("tries", stored.limits[0].key)
    ((budget,),) = [report.budgets for report in await app.admin.limits.list()]
    assert budget.spent_until is not None
    await app.admin.limits.reset("tries", budget.key)
    (state,) = await storage.limits.states("tries")
    assert state.spent_until != budget.spent_until
    with pytest.raises(InvalidArgument, match="no key that is shown as"):
        await app.admin.limits.reset("tries", "user-secret:@" + "0" * 20)


async def test_a_copy_shows_the_same_keys(app: Windlass, storage: Storage) -> None:
    keys = await _keys(app)
    await storage.admin.secret("of somebody who looked there before")
    report = await copy(await parts_of(app).storage(), storage)
    assert report.problems == ()
    secret = await (await parts_of(app).storage()).admin.secret()
    assert await storage.admin.secret() == secret
    (first, *_) = [job for job in keys if job.startswith("check/")]
    assert first.startswith("check/arguments:@")


@pytest.mark.parametrize("template", ["{pin}", "{pin}beef", "secret {name}:{pin}", "a-{pin}-f"])
async def test_no_template_lets_a_digest_through(template: str) -> None:
    async with Windlass("memory://") as app:

        @app.task(name="pay", unique=Unique(key=template))
        async def pay(name: str, pin: Secret[str]) -> None: ...

        job = await pay.enqueue("ada", PIN)
        key = (await app.admin.jobs.get(job.id)).key or ""
        assert [one.id for one in await app.admin.jobs.find(JobFilter(key=key))] == [job.id]
    assert hashlib.sha256(PIN.encode()).hexdigest()[:8] not in key.replace("\\", "")
    assert ":@" in key


async def test_a_digest_that_holds_the_secret_itself_is_not_shown_around_it() -> None:
    pin = "6731"
    digest = hashlib.sha256(pin.encode()).hexdigest()[:20]
    assert pin in digest
    async with Windlass("memory://") as app:

        @app.task(name="unlock", unique=Unique(key="{pin}"), limits=[TRIES])
        async def unlock(pin: Secret[str]) -> None: ...

        job = await unlock.enqueue(pin)
        told = [await app.admin.jobs.get(job.id), *(await app.admin.jobs.explain(job.id)).causes]
    assert digest.partition(pin)[0] not in repr(told)
    assert "unlock/secret:@" in repr(told)


async def test_a_handler_that_names_a_key_does_not_show_its_digest(app: Windlass) -> None:
    @app.task(name="open", queue="doors", max_attempts=1)
    async def opens(pin: Secret[str]) -> None:
        try:
            await app.tasks["unlock"].enqueue(pin)
        except KeyConflict as conflict:
            logging.getLogger("shop").warning("held: %s", conflict.key)
            message = f"no way in: {conflict.key}"
            raise RuntimeError(message) from None

    await filled(app)
    job = await opens.enqueue(PIN)
    async with app.worker(queues=["doors"]):
        with pytest.raises(JobFailed):
            await job.result(timeout=30)
    admin = app.admin
    told = [
        await admin.jobs.get(job.id),
        await admin.jobs.history(job.id),
        await admin.jobs.logs(job.id),
    ]
    told += [await admin.errors.groups(), await admin.jobs.explain(job.id)]
    shown = repr(told)
    assert "held: unlock/secret:***" in shown
    assert "no way in: unlock/secret:***" in shown
    assert not [digest for digest in DIGESTS if digest in shown]
    assert not await admin.jobs.search(next(iter(sorted(DIGESTS, key=len)))[:8])


def test_without_a_secret_nothing_is_shown() -> None:
    assert mask_digests("check/arguments:" + "0" * 64, "") == "check/arguments:***"
    assert mask_digests("limit x, key 'u-secret:0123…", "s") == "limit x, key 'u-secret:***…"
    assert mask_digests("order:" + "0" * 64, "s") == "order:" + "0" * 64
