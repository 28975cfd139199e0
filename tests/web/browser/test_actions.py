"""Every order is clicked: what it does is looked up in the store, and whose name the record has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, Request, expect

from tests.web.browser.busy_shop import until
from tests.web.browser.conftest import Scene
from tests.web.browser.driver import CHROMIUM, Watched
from tests.web.browser.page_walk import walking
from windlass import Flow, Rate, Windlass
from windlass._app.parts import parts_of
from windlass._core.flows.flow import FlowState
from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._core.schedule.rules import Every
from windlass._storage.protocol.workers import Duty
from windlass._web.routes import ROUTES
from windlass.errors import JobNotFound

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
ORDERS: Mapping[str, str] = {
    "/jobs/edit": "jobs.edit",
    "/jobs/run-now": "jobs.run-now",
    "/jobs/copy": "jobs.requeue",
    "/jobs/delete": "jobs.delete",
    "/jobs/cancel": "jobs.cancel",
    "/jobs/requeue": "jobs.requeue",
    "/jobs/discard": "jobs.discard",
    "/flows/cancel": "flows.cancel",
    "/flows/retry": "flows.retry",
    "/flows/recount": "",
    "/errors/requeue": "jobs.requeue",
    "/errors/discard": "jobs.discard",
    "/queues/pause": "queues.pause",
    "/queues/resume": "queues.resume",
    "/queues/warm": "queues.warm",
    "/queues/settings": "queues.set",
    "/workers/quiet": "workers.quiet",
    "/workers/resume": "workers.resume",
    "/workers/stop": "workers.stop",
    "/workers/sweep": "workers.sweep",
    "/schedules/run": "schedules.trigger",
    "/schedules/pause": "schedules.pause",
    "/schedules/resume": "schedules.resume",
    "/schedules/pause-all": "schedules.pause_all",
    "/schedules/resume-all": "schedules.resume_all",
    "/schedules/edit": "schedules.change",
    "/schedules/reset": "schedules.reset",
    "/schedules/remove": "schedules.remove",
    "/schedules/forget": "schedules.delete",
    "/limits/fill": "limits.reset",
    "/limits/empty": "limits.drain",
    "/limits/set": "limits.set",
    "/breakers/close": "breakers.reset",
    "/breakers/set": "breakers.set",
    "/storage/checks": "",
    "/logout": "",
}
"""What is sent where, and what the record of it is called; "" leaves none. Each test clicks all
that begin with the words it names, and is told if one was left out.
"""


async def test_every_action_of_the_route_table_is_clicked_here() -> None:
    sent = {
        route.path
        for route in ROUTES
        if "POST" in route.methods and route.answers == "page" and route.role is not None
    }
    assert sent == ORDERS.keys()


class Clerk:
    """Somebody who clicks, and what went out when they did."""

    def __init__(self, app: Windlass, tab: Watched) -> None:
        self.app = app
        self.tab = tab
        self.sent: set[str] = set()
        tab.page.on("request", self._went)

    def _went(self, request: Request) -> None:
        if request.method == "POST":
            self.sent.add(urlsplit(request.url).path)

    @property
    def page(self) -> Page:
        return self.tab.page

    async def order(
        self,
        path: str,
        link: str,
        button: str,
        notice: str,
        *,
        row: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Click what the page offers, fill in the dialog, agree, and read what came of it."""
        place = self.page.locator("main") if row is None else self.page.get_by_role("row", name=row)
        await place.get_by_role("link", name=link, exact=True).first.click()
        dialog = self.page.get_by_role("dialog")
        for label, text in (fields or {}).items():
            await dialog.get_by_label(label).fill(text)
        await self.sends(path, dialog.get_by_role("button", name=button, exact=True).click, notice)

    async def sends(self, path: str, click: object, notice: str) -> None:
        """The last click of an order: it goes there, is told, and recorded under one's name."""
        assert callable(click)
        async with self.page.expect_request(
            lambda asked: asked.method == "POST" and urlsplit(asked.url).path == path
        ):
            await click()
        await expect(self.page.locator(".notice.good")).to_contain_text(notice)
        (record,) = await self.app.admin.audit.list(limit=1)
        assert (record.note.what, record.note.who) == (ORDERS[path], "dashboard:local")


@asynccontextmanager
async def ordering(scene: Scene, *prefixes: str) -> AsyncIterator[Clerk]:
    """One tab for all orders that begin with these words."""
    async with walking(scene) as tab:
        clerk = Clerk(scene.shop.app, tab)
        yield clerk
        assert clerk.sent == {path for path in ORDERS if path.startswith(prefixes)}


async def test_a_job_is_edited_run_copied_deleted_cancelled_requeued_and_discarded(
    scene: Scene,
) -> None:
    app = scene.shop.app
    send, monthly = app.tasks["shop.mail.send_receipt"], app.tasks["shop.reports.monthly"]
    job = await send.options(delay=7200).enqueue("walk@example.org")
    other = await send.options(delay=7200).enqueue("other@example.org")
    wrong = await monthly.enqueue(99)
    async with ordering(scene, "/jobs/") as clerk:
        page = await clerk.tab.open(f"/jobs/{job.id}")
        badge = page.locator("h1 .badge")
        await clerk.order(
            "/jobs/edit", "Edit", "Edit job", "The job is changed.", fields={"Priority": "7"}
        )
        assert (await app.admin.jobs.get(job.id)).priority == 7
        await clerk.order("/jobs/run-now", "Run now", "Run job now", "The job is due now.")
        await expect(badge).to_have_text("succeeded")  # the page follows by itself
        await clerk.order("/jobs/copy", "Run again", "Run again", "Enqueued this new job.")
        copy = page.url.rpartition("/")[2]
        assert copy != job.id
        await until(app, JobId(copy), lambda found: found.state is State.SUCCEEDED)
        await expect(badge).to_have_text("succeeded")
        await page.get_by_role("link", name="Delete", exact=True).click()
        # What cannot be undone is not one key press away.
        await expect(page.get_by_role("dialog").get_by_role("link", name="Back")).to_be_focused()
        await page.keyboard.press("Escape")
        await clerk.order("/jobs/delete", "Delete", "Delete job", "The job is deleted.")
        with pytest.raises(JobNotFound):
            await app.admin.jobs.get(copy)
        await clerk.tab.open(f"/jobs/{other.id}")
        await clerk.order("/jobs/cancel", "Cancel", "Cancel job", "The job is cancelled.")
        assert (await app.admin.jobs.get(other.id)).state is State.CANCELLED
        await clerk.order("/jobs/requeue", "Requeue", "Requeue job", "The job is requeued.")
        await until(app, other.id, lambda found: found.state is State.SUCCEEDED)
        await until(app, wrong.id, lambda found: found.state is State.FAILED)
        await clerk.tab.open(f"/jobs/{wrong.id}")
        await clerk.order("/jobs/discard", "Discard", "Discard job", "The job is discarded.")
        assert (await app.admin.jobs.get(wrong.id)).state is State.DISCARDED


async def test_a_flow_is_cancelled_and_retried(scene: Scene) -> None:
    app = scene.shop.app
    send = app.tasks["shop.mail.send_receipt"]
    flow = Flow("walked through")
    flow.add(send.call("b@example.org"), after=flow.add(send.options(delay=7200).call("a@x.org")))
    run = await app.start(flow)
    async with ordering(scene, "/flows/") as clerk:
        page = await clerk.tab.open(f"/flows/{run.id}")
        badge = page.locator("h1 .badge").first
        await clerk.order("/flows/cancel", "Cancel", "Cancel flow", "Flow walked through is")
        await (await parts_of(app).storage()).flows.settle(10)  # as workers do, from time to time
        await expect(badge).to_have_text("cancelled")  # the page follows by itself
        await expect(page.locator(".graph .box.end .state")).to_have_text("cancelled")
        await clerk.order("/flows/retry", "Retry", "Retry flow", "is running again.")
        await page.get_by_role("link", name="Recount", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Recount").click()
        await expect(page.locator(".notice.good")).to_contain_text("All counts agree.")
        await expect(badge).to_have_text("succeeded")
        assert (await run.refresh()).state is FlowState.SUCCEEDED


async def test_ticked_jobs_and_all_that_match_are_asked_for_with_their_number(
    scene: Scene,
) -> None:
    app = scene.shop.app
    send = app.tasks["shop.mail.send_receipt"]
    for n in range(3):
        await send.options(delay=7200, tags=["walked"]).enqueue(f"{n}@example.org")
    async with walking(scene) as tab:
        page = await tab.open("/jobs?tag=walked&state=scheduled")
        await page.locator("input[name=job]").nth(0).check()
        await page.locator("input[name=job]").nth(1).check()
        await page.get_by_role("button", name="Cancel", exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("2 jobs")
        await page.get_by_role("button", name="Cancel 2 jobs").click()
        await expect(page.locator(".notice.good")).to_contain_text("2 jobs cancelled")
        page = await tab.open("/jobs?tag=walked")
        await page.get_by_label("All", exact=False).locator("visible=true").last.check()
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("3")
        await page.locator(".confirm button[type=submit]").click()
        await expect(page.locator(".notice.good")).to_contain_text("3 jobs deleted")
        audits = await app.admin.audit.list(limit=5)
        assert all(one.note.who == "dashboard:local" for one in audits[:2])


async def test_a_group_of_errors_is_requeued_and_discarded(scene: Scene) -> None:
    app = scene.shop.app
    jobs = [await app.tasks["shop.billing.refund"].enqueue(n) for n in range(2)]
    for job in jobs:
        await until(app, job.id, lambda found: found.state is State.FAILED)
    await app.admin.queues.pause("refunds")
    async with ordering(scene, "/errors/") as clerk:
        await clerk.tab.open("/errors?queue=refunds")
        await clerk.order(
            "/errors/requeue", "Requeue", "Requeue 2 jobs", "2 jobs requeued.", row="LookupError"
        )
        for job in jobs:
            assert (await app.admin.jobs.get(job.id)).state is State.WAITING
        await app.admin.queues.resume("refunds")
        for job in jobs:
            await until(app, job.id, lambda found: found.state is State.FAILED)
        # Nobody reloads the page: the group comes back by itself.
        await clerk.order(
            "/errors/discard", "Discard", "Discard 2 jobs", "2 jobs discarded.", row="LookupError"
        )
    for job in jobs:
        assert (await app.admin.jobs.get(job.id)).state is State.DISCARDED


async def test_a_queue_is_paused_resumed_warmed_and_set(scene: Scene) -> None:
    admin = scene.shop.app.admin
    async with ordering(scene, "/queues/") as clerk:
        await clerk.tab.open("/queues/one?queue=partners")
        dialog = clerk.page.get_by_role("dialog")
        await clerk.page.get_by_role("link", name="Pause", exact=True).click()
        await expect(dialog).to_contain_text("Pause queue partners?")
        await clerk.page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        assert not (await admin.queues.get("partners")).paused  # it was only asked
        await clerk.order("/queues/pause", "Pause", "Pause queue", "Queue partners is paused.")
        assert (await admin.queues.get("partners")).paused
        await clerk.order("/queues/resume", "Resume", "Resume queue", "Queue partners is resumed.")
        assert not (await admin.queues.get("partners")).paused
        resting = (await admin.queues.get("partners")).cool_until
        assert resting is not None
        await clerk.order("/queues/warm", "End cool-down", "End cool-down", "not cooling down")
        resting = (await admin.queues.get("partners")).cool_until
        assert resting is None or resting <= await admin.storage.now()
        await clerk.order(
            "/queues/settings",
            "Settings",
            "Save settings",
            "The settings of queue partners are saved.",
            fields={"Max running": "5"},
        )
        assert (await admin.queues.get("partners")).settings.max_running == 5
        await expect(clerk.page.locator("main")).to_contain_text("5 over all workers")


async def test_a_worker_is_paused_resumed_and_stopped(scene: Scene) -> None:
    app = scene.shop.app
    async with (
        app.worker(queues=["nobody-uses-it"]) as other,
        ordering(scene, "/workers/") as clerk,
    ):
        await clerk.tab.open(f"/workers/one?worker={other.id}")
        await clerk.order("/workers/quiet", "Pause", "Pause worker", "to take no new jobs")
        assert await duty_of(app, other.id) is Duty.QUIET
        await clerk.order("/workers/resume", "Resume", "Resume worker", "to take jobs again")
        assert await duty_of(app, other.id) is Duty.WORK
        await clerk.order("/workers/stop", "Stop", "Stop worker", "to stop.")
        assert await duty_of(app, other.id) is Duty.STOP
        await clerk.tab.open("/workers")
        await clerk.order("/workers/sweep", "Sweep", "Sweep workers", "Declared 0 workers dead")


async def duty_of(app: Windlass, worker: str) -> Duty:
    (found,) = [one for one in await app.admin.workers.list() if one.start.id == worker]
    return found.duty


async def test_a_schedule_is_run_paused_edited_reset_removed_and_forgotten(scene: Scene) -> None:
    admin, name = scene.shop.app.admin, "stock-taking"
    async with ordering(scene, "/schedules/") as clerk:
        await clerk.tab.open("/schedules")
        await clerk.order(
            "/schedules/pause-all", "Pause all", "Pause all schedules", "All schedules are paused"
        )
        await clerk.order(
            "/schedules/resume-all", "Resume all", "Resume all schedules", "are resumed"
        )
        page = await clerk.tab.open(f"/schedules/one?schedule={name}")
        await clerk.order("/schedules/run", "Run now", "Run now", f"Schedule {name} runs now")
        assert (await admin.schedules.get(name)).runs[0].by == "dashboard:local"
        await clerk.order("/schedules/pause", "Pause", "Pause schedule", "is paused")
        assert (await admin.schedules.get(name)).state == "paused"
        await clerk.order("/schedules/resume", "Resume", "Resume schedule", "is resumed")
        assert (await admin.schedules.get(name)).state == "active"
        await page.get_by_role("link", name="Edit", exact=True).first.click()
        await page.get_by_label("Period").fill("3d")
        await page.get_by_role("button", name="Show the next slots").click()
        await expect(page.locator("#preview")).to_contain_text("every 3 d")
        await expect(page.get_by_label("Cron expression")).to_be_hidden()  # of another choice
        save = page.get_by_role("button", name="Save schedule")
        await clerk.sends("/schedules/edit", save.click, f"Schedule {name} is changed")
        assert await rule_of(scene, name) == Every(timedelta(days=3))
        await clerk.order(
            "/schedules/reset", "Reset to code", "Reset to code", "is reset to the code"
        )
        assert await rule_of(scene, name) == Every(timedelta(days=9))
        await clerk.order("/schedules/remove", "Remove", "Remove schedule", f"{name} is removed")
        await page.get_by_role("link", name="Removed").click()
        await page.get_by_role("link", name=name).click()
        await clerk.order("/schedules/forget", "Delete", "Delete schedule", "is deleted")
        assert name not in [one.name for one in await admin.schedules.list(removed=True)]


async def rule_of(scene: Scene, name: str) -> object:
    plan = (await scene.shop.app.admin.schedules.get(name)).plan
    return None if plan is None else plan.rule


async def test_limits_and_breakers_are_emptied_filled_closed_and_set(scene: Scene) -> None:
    app, task = scene.shop.app, "shop.billing.charge"
    async with ordering(scene, "/limits/", "/breakers/") as clerk:
        await clerk.tab.open("/limits")
        slow = {"Concurrency": "6", "Rate": "9/h:3"}
        await clerk.order(
            "/limits/set", "Change", "Save limit", "stripe is changed", row="stripe", fields=slow
        )
        (limit,) = [one for one in await app.admin.limits.list() if one.spec.name == "stripe"]
        assert (limit.spec.concurrency, limit.spec.rate) == (6, Rate(9, 3600.0, 3))
        await clerk.order("/limits/empty", "Empty", "Empty bucket", "is empty", row="stripe")
        assert await spent(app)
        await clerk.order("/limits/fill", "Refill", "Refill bucket", "is full", row="stripe")
        assert not await spent(app)
        await clerk.order("/breakers/close", "Close", "Close breaker", "is closed", row=task)
        (breaker,) = [one for one in await app.admin.breakers.list() if one.task == task]
        assert breaker.state == "closed"
        nine = {"Failures in a row": "9"}
        await clerk.order(
            "/breakers/set", "Change", "Save breaker", "is changed", row=task, fields=nine
        )
        (breaker,) = [one for one in await app.admin.breakers.list() if one.task == task]
        assert breaker.breaker.failures == 9


async def spent(app: Windlass) -> bool:
    """Whether the bucket of the limit has been drawn from."""
    now = await app.admin.storage.now()
    (limit,) = [one for one in await app.admin.limits.list() if one.spec.name == "stripe"]
    return any(one.spent_until is not None and one.spent_until > now for one in limit.budgets)


async def test_the_storage_is_checked_and_a_user_logs_out(scene: Scene) -> None:
    async with ordering(scene, "/storage/", "/logout") as clerk:
        page = await clerk.tab.open("/storage")
        await page.get_by_role("button", name="Run all checks").click()
        await expect(page.get_by_role("heading", name="All checks")).to_be_visible()
        await expect(page.locator(".findings li")).not_to_have_count(0)
        await page.locator(".side > .side-end").get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        # Whoever is logged out is refused; that is no mistake of the page.
        clerk.tab.wrong = [one for one in clerk.tab.wrong if "401" not in one]


async def test_the_audit_log_links_an_action_to_its_subject(scene: Scene) -> None:
    await scene.shop.app.admin.acting("grace").queues.pause("imports")
    await scene.shop.app.admin.acting("grace").queues.resume("imports")
    async with walking(scene) as tab:
        page = await tab.open("/audit")
        row = page.get_by_role("row").filter(has_text="queue imports").first
        await expect(row).to_contain_text("grace")
        await row.hover()
        await row.get_by_role("link", name="only this").click()
        await expect(page.get_by_label("Subject")).to_have_value("queue imports")
        await expect(page.locator("tbody tr")).to_have_count(2)
        await page.get_by_role("link", name="queue imports").first.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("imports")
