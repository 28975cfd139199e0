"""``app.admin.doctor``: what it finds, and what it says to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.storage.postgres.pooler import Pooler
from windlass import Windlass
from windlass._admin.doctor.finding import Finding, format_bytes
from windlass._admin.doctor.storage_checks import check_health
from windlass._admin.doctor.work_checks import LiveWorkers, check_clocks, check_wakeups
from windlass._admin.explain.cause import with_target, without_commands
from windlass._app.parts import parts_of
from windlass._core.job.job import AttemptError, NewJob
from windlass._core.job.transition import release
from windlass._storage.postgres import open_postgres
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerRecord, WorkerState
from windlass._system.seams import new_job_id
from windlass._tasks.task import TaskRegistry
from windlass.testing import isolated
from windlass.testing._clock import START
from windlass.testing.conformance.steps import HOUR, SECOND, a_worker

GIB = 2**30
SQLITE: Mapping[str, float | str] = {
    "version": "3.54.0",
    "filesystem": "ext4",
    "network_filesystem": "no",
    "wal": 4_000_000,
    "free_disk": 50 * GIB,
}
POSTGRES: Mapping[str, float | str] = {
    "version": "18.1",
    "durability": "full",
    "synchronous_commit": "on",
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "dead_rows": 1000,
    "live_rows": 100_000,
    "oldest_snapshot": 0.2,
    "connections": 12,
    "max_connections": 100,
}
REDIS: Mapping[str, float | str] = {
    "version": "9.1.2",
    "durability": "local",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "last_write": "ok",
    "eviction": "noeviction",
    "maxmemory": 4 * GIB,
    "size": GIB,
    "replicas": 0,
}


# --- the storage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [SQLITE, POSTGRES, REDIS], ids=["sqlite", "postgres", "redis"])
def test_a_healthy_storage_is_reported_as_ok(facts: Mapping[str, Any]) -> None:
    found = list(check_health(facts))
    assert len(found) >= 3
    assert {one.level for one in found} == {"ok"}
    assert not any(one.fix for one in found)


@pytest.mark.parametrize(
    ("facts", "wrong", "name", "level"),
    [
        (SQLITE, {"version": "3.51.2"}, "sqlite_version", "bad"),
        (SQLITE, {"filesystem": "nfs4", "network_filesystem": "yes"}, "filesystem", "bad"),
        (SQLITE, {"wal": 300 * 2**20}, "wal", "warn"),
        (SQLITE, {"wal": 3 * GIB}, "wal", "bad"),
        (SQLITE, {"free_disk": GIB // 2}, "disk", "warn"),
        (SQLITE, {"free_disk": 1000}, "disk", "bad"),
        (POSTGRES, {"fsync": "off"}, "fsync", "bad"),
        (POSTGRES, {"full_page_writes": "off"}, "full_page_writes", "bad"),
        (POSTGRES, {"synchronous_commit": "off"}, "synchronous_commit", "warn"),
        (POSTGRES, {"autovacuum": "off"}, "autovacuum", "bad"),
        (POSTGRES, {"dead_rows": 500_000}, "dead_rows", "warn"),
        (POSTGRES, {"dead_rows": 5_000_000}, "dead_rows", "bad"),
        (POSTGRES, {"oldest_snapshot": 400.0}, "old_snapshot", "warn"),
        (POSTGRES, {"oldest_snapshot": 7200.0}, "old_snapshot", "bad"),
        (POSTGRES, {"connections": 85}, "connections", "warn"),
        (POSTGRES, {"connections": 99}, "connections", "bad"),
        (REDIS, {"appendonly": "no"}, "persistence", "bad"),
        (REDIS, {"appendonly": "no", "durability": "none"}, "persistence", "warn"),
        (REDIS, {"appendfsync": "no"}, "persistence", "bad"),
        (REDIS, {"last_write": "err"}, "append_only_file", "bad"),
        (REDIS, {"delayed_syncs": 3}, "slow_syncs", "warn"),
        (REDIS, {"eviction": "allkeys-lru"}, "eviction", "bad"),
        (REDIS, {"durability": "replicated"}, "replicas", "bad"),
        (REDIS, {"size": 3.5 * GIB}, "memory", "warn"),
        (REDIS, {"size": 3.99 * GIB}, "memory", "bad"),
    ],
)
def test_problems_are_found_with_advice(
    facts: Mapping[str, Any], wrong: Mapping[str, Any], name: str, level: str
) -> None:
    (found,) = [one for one in check_health({**facts, **wrong}) if one.level != "ok"]
    assert (found.name, found.level) == (name, level)
    assert found.text.endswith(".")
    assert found.fix


def test_nothing_is_said_of_what_a_backend_does_not_tell() -> None:
    assert list(check_health({"size": 3})) == []
    assert list(check_health({"autovacuum": "on"})) != []
    assert [one.name for one in check_health({"wal": 0})] == ["wal"]


def test_a_pooler_is_named() -> None:
    assert "pooler" in {one.name for one in check_health({**POSTGRES, "pooled": "yes"})}


def test_sizes_are_shown_in_readable_units() -> None:
    told = [format_bytes(size) for size in (0, 1023, 1536, 3 * 2**20, 2.5 * GIB, 3 * 2**40)]
    assert told == ["0 B", "1023 B", "1.5 KiB", "3 MiB", "2.5 GiB", "3 TiB"]


# --- who works, and on what -----------------------------------------------------------------------


def an_app() -> Windlass:
    app = Windlass("memory://")

    @app.task(name="mail", queue="mail")
    async def mail(to: str, copies: int) -> None: ...

    return app


async def enlisted(storage: Storage, worker: str, **said: Any) -> None:
    await storage.workers.register(msgspec.structs.replace(a_worker(worker), **said))


async def stored(storage: Storage, task: str, queue: str, payload: bytes = b"{}") -> str:
    new = NewJob(id=new_job_id(), task=task, queue=queue, payload=payload)
    await storage.jobs.insert([new])
    return new.id


def named(found: Sequence[Finding], name: str) -> Finding:
    (one,) = [finding for finding in found if finding.name == name]
    return one


async def test_an_app_with_workers_passes_all_checks() -> None:
    app = an_app()
    with isolated(app):
        async with app:
            storage = await parts_of(app).storage()
            await enlisted(storage, "w1", queues=["mail"], tasks=["mail"], lease=HOUR)
            await stored(storage, "mail", "mail", b'{"to":"ada","copies":1}')
            found = await app.admin.doctor.check(tasks=app.tasks)
            assert {one.level for one in found} == {"ok"}
            names = [one.name for one in found]
            assert names == ["storage", "workers", "queues", "tasks", "payloads"]


async def test_jobs_without_workers_tasks_or_fitting_arguments_are_found() -> None:
    app = an_app()
    with isolated(app) as clock:
        async with app:
            storage = await parts_of(app).storage()
            await enlisted(storage, "w1", queues=["other"], tasks=["serve"], version="1")
            await enlisted(storage, "w2", queues=["mail"], tasks=["mail"], version="2")
            await enlisted(storage, "gone quiet", queues=["mail"], lease=SECOND)
            clock.advance(2)
            alone = await stored(storage, "serve", "nobody's")
            strange = await stored(storage, "forgotten", "mail")
            elsewhere = await stored(storage, "serve", "mail")
            unfit = await stored(storage, "mail", "mail", b'{"to":"ada"}')
            await app.admin.queues.pause("mail")
            found = await app.admin.doctor.check(tasks=app.tasks)

    deserted = named(found, "queue_without_worker")
    assert deserted.level == "bad"
    assert "nobody's" in deserted.text
    assert "--queue" in deserted.fix
    assert named(found, "queue_paused").level == "warn"
    assert "gone quiet" in named(found, "workers").text
    assert "1, 2" in named(found, "versions").text
    unknown = {one.text: one.level for one in found if one.name == "unknown_task"}
    assert sorted(unknown.values()) == ["bad", "warn", "warn"]
    (worst,) = [text for text, level in unknown.items() if level == "bad"]
    assert strange in worst
    told = " ".join(unknown)
    assert alone in told
    assert elsewhere in told
    misfit = named(found, "undecodable_payload")
    assert misfit.level == "bad"
    assert unfit in misfit.text
    assert "copies" in misfit.text


async def test_jobs_that_were_given_back_because_they_do_not_fit_are_named() -> None:
    app = an_app()
    with isolated(app):
        async with app:
            storage = await parts_of(app).storage()
            await enlisted(storage, "w1", queues=["mail"], tasks=["mail"])
            job = await stored(storage, "mail", "mail", b'{"to":"ada","copies":2}')
            (running,) = (await storage.jobs.claim("w1", [Want("mail", 1)], total=1)).jobs
            why = AttemptError("PayloadError", "Misfit: unknown field `loud`")
            await storage.jobs.apply([release(running, by="w1", delay=15 * SECOND, missed=why)])
            found = await app.admin.doctor.check(tasks=app.tasks)
    misfit = named(found, "misfit")
    assert misfit.level == "warn"
    assert "1 job of task 'mail' on queue 'mail' waits because its arguments" in misfit.text
    assert job in misfit.text
    assert "unknown field `loud`" in misfit.text
    assert "deploy workers before producers" in misfit.fix


async def test_a_queue_whose_workers_are_quiet_is_found_with_the_way_back() -> None:
    app = an_app()
    with isolated(app):
        async with app:
            storage = await parts_of(app).storage()
            await enlisted(storage, "w1", queues=["mail"], tasks=["mail"], lease=HOUR)
            await stored(storage, "mail", "mail", b'{"to":"ada","copies":1}')
            await app.admin.workers.quiet("w1")
            found = await app.admin.doctor.check(tasks=app.tasks)
    deserted = named(found, "queue_without_worker")
    assert "whose workers are paused" in deserted.text
    assert "windlass workers resume w1" in deserted.fix


async def test_a_worker_that_does_not_say_what_it_has_may_have_anything() -> None:
    app = an_app()
    with isolated(app):
        async with app:
            storage = await parts_of(app).storage()
            await enlisted(storage, "old", queues=["mail"], lease=HOUR)
            await stored(storage, "forgotten", "mail")
            found = await app.admin.doctor.check()
            assert "unknown_task" not in {one.name for one in found}


async def test_a_task_of_the_app_counts_as_known_when_its_worker_is_missing() -> None:
    app = an_app()
    with isolated(app):
        async with app:
            await stored(await parts_of(app).storage(), "mail", "mail", b'{"to":"ada","copies":1}')
            alone = {one.name for one in await app.admin.doctor.check(tasks=TaskRegistry())}
            named_by_app = {one.name for one in await app.admin.doctor.check()}
    assert {"queue_without_worker", "unknown_task"} <= alone
    assert "queue_without_worker" in named_by_app
    assert "unknown_task" not in named_by_app


def record(worker: str, skew: timedelta | None) -> WorkerRecord:
    clock = None if skew is None else START + skew
    start = msgspec.structs.replace(a_worker(worker), clock=clock)
    return WorkerRecord(start=start, state=WorkerState.LIVE, started_at=START, beat_at=START)


def test_clocks_that_are_off_are_named() -> None:
    crew = LiveWorkers.of(
        [record("right", SECOND), record("late", -HOUR), record("mute", None)], START
    )
    late, here = sorted(check_clocks(START, START + 5 * SECOND, crew), key=lambda one: one.level)
    assert (late.level, here.level) == ("bad", "warn")
    assert "worker late" in late.text
    assert "behind" in late.text
    assert "this machine is 5 s ahead" in here.text
    (fine,) = check_clocks(START, START, LiveWorkers.of([record("right", SECOND)], START))
    assert (fine.level, fine.text) == ("ok", "2 clocks agree with the store's within 2 s.")


async def test_a_hint_is_heard(storage: Storage) -> None:
    found = await check_wakeups(storage, storage)
    assert found.level == "ok"
    assert found.text.startswith("A wake-up arrived after ")
    assert [one.queue for one in await storage.queues.queues()] == []


class Deaf:
    """Hears nothing, as behind a pooler that gives connections away between statements."""

    def __init__(self, storage: Storage) -> None:
        self.admin = storage.admin

    @property
    def wakeups(self) -> Deaf:
        return self

    def subscribe(self, _callback: Any) -> Any:
        return lambda: None


async def test_a_wakeup_that_does_not_arrive_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass._admin.doctor.work_checks._PATIENCE", 0.05)
    monkeypatch.setattr("windlass._admin.doctor.work_checks._AGAIN", 0.01)
    app = an_app()
    with isolated(app):
        async with app:
            deaf: Any = Deaf(await parts_of(app).storage())
            found = await check_wakeups(deaf, deaf)
    assert found.level == "warn"
    assert "PgBouncer" in found.fix


async def test_a_pool_that_lets_no_hints_through_is_found_out(
    clean_schema: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._admin.doctor.work_checks._PATIENCE", 0.7)
    url, schema = clean_schema
    async with Pooler(url) as pool:
        listening = await open_postgres(pool.url, schema=schema)
        speaking = await open_postgres(pool.url, schema=schema)
        try:
            assert "pooler" in {one.name for one in check_health(await listening.health())}
            assert (await check_wakeups(listening, speaking)).level == "warn"
        finally:
            await listening.close()
            await speaking.close()


def test_commands_are_about_the_app_or_storage_that_was_asked() -> None:
    advice = "Resume it: `windlass queues resume mail`, or `windlass worker MODULE:APP -q mail`"
    assert with_target(advice, None, None) == advice
    by_app = with_target(advice, "shop:app", None)
    assert "`windlass queues resume shop:app mail`" in by_app
    assert "`windlass worker shop:app -q mail`" in by_app
    assert "`windlass queues resume --url sqlite:///a.db mail`" in with_target(
        advice, None, "sqlite:///a.db"
    )
    hidden = with_target(advice, None, "redis://:hunter2@h/0")
    assert '`windlass queues resume --url "$WINDLASS_URL" mail`' in hidden
    assert without_commands("Wait, or start it now: `windlass jobs run-now 7`") == (
        "Wait, or start it now"
    )


async def test_a_pause_of_all_schedules_is_found() -> None:
    async with Windlass("memory://") as app:
        assert "schedules_paused" not in {one.name for one in await app.admin.doctor.check()}
        await app.admin.schedules.pause_all()
        (found,) = [one for one in await app.admin.doctor.check() if one.name == "schedules_paused"]
    assert found.level == "warn"
    assert found.text.startswith("All schedules are paused, for ")
    assert "`windlass schedules resume --all" in found.fix
