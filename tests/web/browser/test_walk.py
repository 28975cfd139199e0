"""Every page and every order, clicked as somebody would, without one complaint of the browser."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect

from tests.web.browser.conftest import Scene
from tests.web.browser.walking import walking, whole
from tests.web.browsing import CHROMIUM, PHONE, watched
from windlass.core.rules import Every
from windlass.core.state import State
from windlass.web.navigation import NAVIGATION
from windlass.web.routes import ROUTES

OPENED = {entry.path for entry in NAVIGATION}
"""Those that the navigation opens are read without scripts elsewhere."""
pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


async def agree(page: Page, button: str, notice: str) -> None:
    """Say yes to what the dialog asks, and read what came of it."""
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name=button).click()
    await expect(page.locator(".notice.good")).to_contain_text(notice)


async def test_every_page_is_whole_on_a_phone_in_the_dark(scene: Scene) -> None:
    """On a desk, in the light, they are looked at together with what axe says of them."""
    async with walking(scene, color_scheme="dark", viewport=PHONE) as tab:
        for name, path in {**scene.pages, **scene.questions}.items():
            await whole(tab, name, path)


async def test_the_walk_knows_every_page(scene: Scene) -> None:
    """A page that nobody looks at in a browser is one whose script may be broken."""
    known = {urlsplit(path).path for path in scene.pages.values()} | {"/", "/jobs/{job}"}
    pages = {
        route.path
        for route in ROUTES
        if route.answers == "page" and route.role is not None and route.methods == ("GET",)
    }
    assert pages <= known


async def test_every_link_of_the_navigation_leads_to_its_page(scene: Scene) -> None:
    async with walking(scene) as tab:
        page = await tab.open("/overview")
        names = [entry.title for entry in NAVIGATION]
        for name in names:
            await page.locator(".side > .nav").get_by_role("link", name=name, exact=True).click()
            here = page.locator(".side > .nav a[aria-current=page]")
            await expect(here).to_have_text(name)
            await expect(page.get_by_role("heading", level=1)).to_contain_text(name)


async def test_a_job_is_requeued_edited_cancelled_and_deleted(scene: Scene) -> None:
    app = scene.shop.app
    send = app.tasks["shop.mail.send_receipt"]
    job = await send.options(delay=7200).enqueue("walk@example.org")
    async with walking(scene) as tab:
        page = await tab.open(f"/jobs/{job.id}")
        await page.get_by_role("link", name="Edit").click()
        await page.get_by_role("dialog").get_by_label("Priority").fill("7")
        await agree(page, "Edit job", "changed")
        assert (await app.admin.get(job.id)).priority == 7
        await page.get_by_role("link", name="Cancel", exact=True).click()
        await agree(page, "Cancel job", "The job is cancelled.")
        assert (await app.admin.get(job.id)).state is State.CANCELLED
        await page.get_by_role("link", name="Requeue").click()
        await agree(page, "Requeue job", "The job waits again.")
        # The worker runs it, and the page says so by itself.
        badge = page.locator("h1 + .badge, h1 .badge, .badge").first
        await expect(badge).to_contain_text("succeeded", timeout=30_000)
        await page.get_by_role("link", name="Delete").click()
        # What cannot be undone is not one key press away.
        await expect(page.get_by_role("dialog").get_by_role("link", name="Back")).to_be_focused()
        await agree(page, "Delete job", "The job is deleted.")
        assert page.url.endswith("/jobs")


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
        audits = await app.admin.audits(limit=5)
        assert all(one.note.who == "dashboard:local" for one in audits[:2])


async def test_queues_limits_breakers_and_schedules_are_steered(scene: Scene) -> None:
    app = scene.shop.app
    monthly = app.tasks["shop.reports.monthly"]
    await app.admin.create_schedule("walked", Every(timedelta(days=9)), monthly.call(1))
    async with walking(scene) as tab:
        page = await tab.open("/queues/one?queue=webhooks")
        await page.get_by_role("link", name="Pause").click()
        await agree(page, "Pause queue", "paused")
        await page.get_by_role("link", name="Resume").click()
        await agree(page, "Resume queue", "runs again")
        page = await tab.open("/limits")
        await page.get_by_role("row", name="stripe").get_by_role("link", name="Change").click()
        await page.get_by_role("dialog").get_by_label("Running at once").fill("6")
        await agree(page, "Save limit", "Limit stripe is changed.")
        row = page.get_by_role("row", name="shop.billing.charge")
        await row.get_by_role("link", name="Close").click()
        await agree(page, "Close", "breaker")
        page = await tab.open("/schedules/one?schedule=walked")
        await page.get_by_role("link", name="Pause").click()
        await agree(page, "Pause", "paused")
        page = await tab.open("/schedules/edit?schedule=walked")
        await page.get_by_label("Period").fill("3d")
        await page.get_by_role("button", name="Show the next firings").click()
        await expect(page.locator("main")).to_contain_text("every 3 d")
        await page.get_by_role("button", name="Save schedule").click()
        await expect(page.locator(".notice.good")).to_contain_text("walked is changed")
    (limit,) = [one for one in await app.admin.limits() if one.spec.name == "stripe"]
    assert limit.spec.concurrency == 6
    assert (await app.admin.schedule("walked")).state == "paused"


async def test_what_is_wrong_with_a_field_is_said_and_nothing_is_changed(scene: Scene) -> None:
    async with watched(scene.chromium, scene.room, scene.root) as tab:
        page = await tab.open("/limits/set?limit=stripe")
        await page.get_by_label("Running at once").fill("many")
        await page.get_by_role("button", name="Save limit").click()
        await expect(page.locator("main")).to_contain_text("whole number")
        await expect(page.get_by_label("Running at once")).to_have_value("many")
        tab.wrong = [one for one in tab.wrong if "422" not in one]


async def test_without_scripts_every_page_can_be_read(scene: Scene) -> None:
    async with walking(scene, java_script_enabled=False) as tab:
        for path in {*scene.pages.values(), *scene.questions.values()} - OPENED:
            page = await tab.open(path)
            assert await page.get_by_role("heading", level=1).is_visible(), path
