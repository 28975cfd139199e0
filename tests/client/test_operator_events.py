"""Orders leave a trace: one event per transition, whoever asked for it."""

from __future__ import annotations

import pytest

from windlass import GiveUp, Windlass
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.state import Verb
from windlass.errors import ConfigError, InvalidArgument, UnknownTask
from windlass.testing import drain, isolated


def _app() -> tuple[Windlass, list[JobMoved]]:
    app = Windlass("memory://")
    moves: list[JobMoved] = []

    @app.on_transition
    def keep(event: Event) -> None:
        if isinstance(event, JobMoved):
            moves.append(event)

    return app, moves


async def test_cancelling_requeueing_and_discarding_are_published_like_other_transitions() -> None:
    app, moves = _app()

    @app.task(name="hopeless")
    async def hopeless() -> None:
        raise GiveUp

    with isolated(app):
        waiting = await hopeless.options(delay=60).enqueue()
        await waiting.cancel()
        assert [move.verb for move in moves] == [Verb.CANCEL]
        failed = await hopeless.enqueue()
        await drain(app)
        moves.clear()
        await app.admin.jobs.requeue(failed.id)
        await drain(app)
        await app.admin.jobs.discard(failed.id)
        verbs = [move.verb for move in moves]
        assert verbs == [Verb.REQUEUE, Verb.CLAIM, Verb.FAIL, Verb.DISCARD]


async def test_a_refused_action_is_not_published() -> None:
    app, moves = _app()

    @app.task(name="noop")
    async def noop() -> None: ...

    with isolated(app):
        job = await noop.enqueue()
        await drain(app)
        moves.clear()
        await job.cancel()
        assert moves == []


async def test_a_call_of_another_apps_task_is_refused() -> None:
    app, _ = _app()
    other = Windlass("memory://")

    @other.task(name="theirs")
    async def theirs() -> None: ...

    with pytest.raises(UnknownTask, match="theirs"):
        await app.enqueue_many([theirs.call()])


def test_an_unknown_option_of_a_task_is_refused_with_what_was_probably_meant() -> None:
    app, _ = _app()
    with pytest.raises(ConfigError, match="Did you mean 'queue'"):
        app.task(qeue="mail")(print)  # type: ignore[call-overload]


def test_a_slash_in_a_tasks_name_is_refused_because_unique_keys_are_told_apart_by_it() -> None:
    app, _ = _app()

    async def noop() -> None: ...

    with pytest.raises(InvalidArgument, match="'/'"):
        app.task(name="a/b")(noop)


async def test_a_worker_that_runs_until_empty_can_be_waited_for() -> None:
    app, _ = _app()

    @app.task(name="noop")
    async def noop() -> None: ...

    async with app:
        job = await noop.enqueue()
        async with app.worker(until_empty=True) as worker:
            assert await worker.wait() == "empty"
        assert (await job.refresh()).state == "succeeded"
