"""Which arguments are secret goes along with the job, and keys are not made of them."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass import Every, Failure, Limit, Secret, Unique, Windlass
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.testing import drain, isolated

LIMIT = Limit("cards", concurrency=1, key="{card}")


async def test_a_job_and_its_follow_ups_name_their_secrets_beside_their_tags() -> None:
    app = Windlass("memory://")

    @app.task(name="told", tags=["alarm"])
    async def told(failure: Failure) -> None:
        assert failure.arguments == {"card": "4111-2222", "to": "ada"}

    @app.task(name="pay", tags=["vip"], max_attempts=1, on_failure=told)
    async def pay(card: Secret[str], to: str) -> None:
        raise ValueError(f"{card} of {to}")

    @app.schedule(Every(3600), args=("4111-2222", "ada"))
    @app.task(name="plan")
    async def plan(card: Secret[str], to: str) -> None: ...

    with isolated(app):
        async with app:
            one = await pay.enqueue("4111-2222", "ada")
            many = await app.enqueue_many([pay.options(tags=[]).call("4111-2222", "ada")])
            assert (await one.refresh()).tags == ("vip", "secret:card")
            assert (await many[0].refresh()).tags == ("secret:card",)
            (await drain(app)).of(told).raise_errors()
            (followed, _) = await app.admin.jobs.find(JobFilter(task="told"))
            assert followed.tags == ("alarm", "secret:card")
            shown = msgspec.json.decode(followed.payload)["failure"]
            assert shown["arguments"] == {"card": "***", "to": "ada"}
            assert shown["error_message"] == "*** of ada"
            async with app.worker():
                (report,) = [r for r in await app.admin.schedules.list() if r.name == "plan"]
            assert report.plan is not None
            assert report.plan.job is not None
            assert report.plan.job.tags == ("secret:card", "schedule:plan")
            assert msgspec.json.decode(report.plan.job.payload) == {"card": "***", "to": "ada"}


async def test_keys_hold_a_digest_of_what_is_secret() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="pay", limits=[LIMIT], unique=Unique(key="{to}/{login.password}"))
        async def pay(card: Secret[str], to: str, login: dict[str, Any]) -> None: ...

        first = await pay.enqueue("4111-2222", "ada", {"password": "hunter22"})
        again = await pay.enqueue("4111-2222", "ada", {"password": "hunter22"})
        other = await pay.enqueue("4111-2222", "ada", {"password": "hunter23"})
        assert (first.created, again.created, other.created) == (True, False, True)
        jobs = [await job.refresh() for job in (first, other)]
        assert jobs[0].limits == jobs[1].limits
        assert jobs[0].limits[0].key.startswith("secret:")
        assert len(jobs[0].limits[0].key) == len("secret:") + 20
        assert "hunter" not in str(jobs[0].key)
        assert "ada/secret" in str(jobs[0].key).replace("\\", "")
