"""The dashboard in a browser: what is live, the keyboard, themes, charts, and without scripts.

How every page looks, and every order: browser/.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from playwright.async_api import Response as PageResponse
from starlette.responses import HTMLResponse, Response

from tests.web.browser.driver import CHROMIUM, browser, lively, served, watched
from tests.web.fixtures import Room
from tests.web.pages.test_outage import away
from tests.web.security.hostile_texts import HOSTILE
from tests.web.security.test_hostile_text import filled
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._storage.protocol.journal import LogChunk, LogLine
from windlass._web.live.changes import LiveChanges
from windlass._web.render.templates import NAVIGATION, _environment
from windlass._web.request import PageRequest
from windlass._web.routes import LOOKS, LOOKS_AT, ROUTES, PageRoute
from windlass._web.security.concurrency import ReadLimiter
from windlass.errors import StorageUnavailable
from windlass.testing.conformance.steps import started

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
PAGES = [entry for entry in NAVIGATION if entry.path in {route.path for route in ROUTES}]


@pytest_asyncio.fixture(loop_scope="module")
async def room() -> AsyncIterator[Room]:
    async with Windlass("memory://") as app:
        await lively(app)
        one = Room(app, lines=False)
        one.dashboard.live = LiveChanges(app.admin, LOOKS, LOOKS_AT, every=0.05)
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def root(room: Room) -> AsyncIterator[str]:
    async with served(room) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with browser() as one:
        yield one


async def settled(page: Page) -> None:
    """Its scripts run: what is live listens."""
    if await page.locator("[data-part]").count():
        await expect(page.locator("[data-live='on']").first).to_be_attached()


async def fits(page: Page) -> None:
    """Nothing sticks out to the side."""
    wide = await page.evaluate(
        "() => document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0, f"{page.url} is {wide} px too wide"


async def test_ticked_jobs_stay_where_they_are_and_one_job_is_followed(
    room: Room, root: str, chromium: Browser
) -> None:
    async with watched(chromium, room, root) as tab:
        page = await tab.open("/jobs?state=ready&queue=search")
        await settled(page)
        boxes = page.locator('tbody input[name="job"]')
        shown = await boxes.count()
        await page.get_by_label("Select all on this page").check()
        await boxes.first.uncheck()
        await expect(page.locator("[data-ticked]")).to_have_text(f"({shown - 1})")
        gone = await boxes.first.input_value()
        await room.app.admin.jobs.cancel(gone)
        await page.get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name=f"Cancel {shown - 1} jobs").click()
        notice = page.locator(".notice.good")
        await expect(notice).to_contain_text(f"{shown - 1} jobs cancelled.")
        await tab.open(f"/jobs/{gone}")
        await settled(page)
        await expect(page.locator("h1 .badge")).to_have_text("cancelled")
        await room.app.admin.jobs.requeue(gone)
        await expect(page.locator("h1 .badge")).to_have_text("ready")
        await tab.picture("job")
        await fits(page)


async def test_a_page_updates_itself_unless_that_is_switched_off(
    room: Room, root: str, chromium: Browser
) -> None:
    async with watched(chromium, room, root) as tab:
        page = await tab.open("/queues")
        row = page.get_by_role("row").filter(has_text="mail")
        switch = page.locator(".side > .side-end [data-live]")
        await expect(switch).to_have_text("Live")
        await page.evaluate("() => { window.stayed = true; }")
        await room.app.admin.queues.pause("mail")
        await expect(row).to_contain_text("paused")
        await switch.click()
        await expect(switch).to_have_text("Paused")
        await room.app.admin.queues.resume("mail")
        await room.dashboard.live.step()
        await expect(row).to_contain_text("paused")
        await switch.click()
        await expect(switch).to_have_text("Live")
        await expect(row).not_to_contain_text("paused")
        assert await page.evaluate("() => window.stayed"), "the page was not loaded again"


async def test_an_outage_is_shown_above_the_last_known_values_and_passes(
    room: Room, root: str, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(chromium, room, root) as tab:
        page = await tab.open("/queues")
        await expect(page.locator("[data-live='on']").first).to_be_attached()
        with monkeypatch.context() as patch:
            away(room, patch, StorageUnavailable("down"))
            await expect(page.locator("#outage")).to_be_visible()
            await expect(page.get_by_role("row").filter(has_text="mail")).to_be_visible()
            await tab.picture("outage")
        await expect(page.locator("#outage")).to_be_hidden()


async def test_the_keyboard_and_the_palette_lead_everywhere(
    room: Room, root: str, chromium: Browser
) -> None:
    async with watched(chromium, room, root) as tab:
        page = await tab.open("/queues")
        await page.keyboard.press("g")
        await page.keyboard.press("w")
        await page.wait_for_url(re.compile("/workers$"))
        await page.keyboard.press("Control+k")
        palette = page.get_by_role("dialog", name="Search and commands")
        await expect(palette).to_be_visible()
        await tab.picture("palette")
        await page.keyboard.type("go queues")
        await page.keyboard.press("Enter")
        await page.wait_for_url(re.compile("/queues$"))
        await page.keyboard.press("j")
        await expect(page.locator("tr:has(a:focus)")).to_have_count(1)
        await page.keyboard.press("Control+k")
        await page.keyboard.type("pause queue mail")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_contain_text("Pause queue mail?")


async def test_a_theme_is_kept_and_the_system_decides_without_one(
    room: Room, root: str, chromium: Browser
) -> None:
    background = "() => getComputedStyle(document.documentElement).backgroundColor"
    async with watched(chromium, room, root, color_scheme="dark") as tab:
        page = await tab.open("/queues")
        dark = await page.evaluate(background)
        await page.get_by_role("button", name="Light").first.click()
        light = await page.evaluate(background)
        assert light != dark
        await tab.open("/workers")
        assert await page.evaluate(background) == light
        await page.get_by_role("button", name="System").first.click()
        assert await page.evaluate(background) == dark


async def test_without_scripts_everything_can_be_read_and_done(
    room: Room, root: str, chromium: Browser
) -> None:
    async with watched(chromium, room, root, java_script_enabled=False) as tab:
        for entry in PAGES:
            page = await tab.open(entry.path)
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
        page = await tab.open("/queues")
        row = page.get_by_role("row").filter(has_text="billing")
        await row.get_by_role("link", name="Pause").click()
        await page.get_by_role("button", name="Pause queue").click()
        await expect(page.locator(".notice.good")).to_contain_text("Queue billing is paused.")


async def test_hostile_names_run_nothing(room: Room, root: str, chromium: Browser) -> None:
    for text in HOSTILE:
        await filled(room, text)
    async with watched(chromium, room, root) as tab:
        for entry in PAGES:
            page = await tab.open(entry.path)
            await settled(page)
            await tab.picture(f"hostile-{entry.title.lower()}")
            await fits(page)


async def test_a_page_whose_session_has_ended_asks_to_log_in(
    room: Room, root: str, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calmly: its stream says so, and nothing is fetched that would be refused."""
    monkeypatch.setattr(room.door, "look_again", 0.05)
    async with watched(chromium, room, root) as tab:
        page = await tab.open("/jobs?queue=mail")
        await expect(page.locator("[data-live='on']").first).to_be_attached()
        seen: list[tuple[str, int]] = []
        page.on("response", lambda answer: seen.append((answer.url, answer.status)))
        room.door.sessions.revoke("local")
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        await expect(page.get_by_role("status")).to_have_text("You were logged out.")
        assert page.url == f"{root}/jobs?queue=mail"
        assert [(url, code) for url, code in seen if code >= 400] == [(page.url, 401)]
        tab.wrong.clear()  # Chromium calls the page that asks to log in an error


async def test_a_part_that_could_not_be_made_now_comes_later_and_breaks_nothing(
    room: Room, root: str, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(chromium, room, root) as tab:
        page = await tab.open("/queues")
        await expect(page.locator("[data-live='on']").first).to_be_attached()
        row = page.get_by_role("row").filter(has_text="mail")
        monkeypatch.setattr(room.dashboard, "places", places := ReadLimiter(1, waits=0.01))
        async with places.one("another"), page.expect_response(_refused) as refused:
            await room.app.admin.queues.pause("mail")
        assert (await refused.value).status == 503
        await expect(row).to_contain_text("paused")
        await expect(page.get_by_role("heading", name="Queues")).to_be_visible()
        assert all("503" in said for said in tab.wrong)
        tab.wrong.clear()


def _refused(answer: PageResponse) -> bool:
    return answer.status == 503


CHARTS = """
{% extends layout %}
{% import "parts/page.html" as page with context %}
{% import "parts/show.html" as show with context %}
{% block title %}Charts{% endblock %}
{% block content %}
{% call page.live("queues") %}
<section class="card body">{{ page.chart("Jobs that ended", told=told) }}</section>
<section class="card body">{{ page.chart("Waits", url=visit.url("/numbers")) }}</section>
{{ show.spark([1, 5, 2, 8], "lately") }}
{% endcall %}
{% endblock %}
"""


async def test_charts_are_drawn_and_follow_without_being_made_anew(
    room: Room, chromium: Browser
) -> None:
    times = [1_790_000_000 + 60 * n for n in range(30)]
    told = {
        "times": times,
        "unit": "/s",
        "series": [
            {
                "label": "Succeeded </script>",
                "values": [n % 7 for n in range(30)],
                "colour": "green",
            },
            {
                "label": "Failed",
                "values": [n % 3 for n in range(30)],
                "colour": "red",
                "bars": True,
            },
        ],
    }

    async def charts(visit: PageRequest) -> Response:
        template = _environment().from_string(CHARTS)
        context = {"visit": visit, "layout": "fragment.html" if visit.partial else "layout.html"}
        always = {**visit.dashboard.templates._always, "now": await visit.admin.storage.now()}
        return HTMLResponse(template.render({**always, **context, "told": told}))

    async def numbers(visit: PageRequest) -> Response:
        return visit.json({**told, "unit": "s"})

    more = (PageRoute("/charts", charts), PageRoute("/numbers", numbers, answers="json"))
    with_charts = Room(room.app, lines=False, routes=(*ROUTES, *more))
    with_charts.dashboard.live = LiveChanges(room.app.admin, LOOKS, every=0.05)
    async with served(with_charts) as root, watched(chromium, with_charts, root) as tab:
        page = await tab.open("/charts")
        await expect(page.locator(".chart canvas")).to_have_count(2)
        await expect(page.locator(".u-legend").first).to_contain_text("Succeeded </script>")
        await page.evaluate("() => { document.querySelector('canvas').mine = true; }")
        told["series"][0]["values"] = [50] * 30  # type: ignore[index]
        await expect(page.locator("[data-live='on']").first).to_be_attached()
        before = await page.locator(".chart").first.get_attribute("data-chart")
        await room.app.admin.queues.pause("mail")
        await expect(page.locator(".chart").first).not_to_have_attribute("data-chart", before or "")
        assert await page.evaluate("() => document.querySelector('canvas').mine")
        await page.get_by_role("button", name="Dark").first.click()
        await expect(page.locator(".chart canvas")).to_have_count(2)
        await tab.picture("charts-dark")


async def test_a_log_opens_at_its_newest_lines_and_follows_them(
    room: Room, root: str, chromium: Browser
) -> None:
    storage = await parts_of(room.app).storage()
    run = await started(storage)

    async def say(number: int) -> None:
        lines = [LogLine(run.started_at, 20, f"line {number}.{n}") for n in range(100)]
        await storage.journal.append_logs([LogChunk(run.claim, number, lines)])

    await say(1)
    async with watched(chromium, room, root) as tab:
        page = await tab.open(f"/jobs/{run.claim.job}")
        await settled(page)
        await page.locator(".log-view").scroll_into_view_if_needed()
        await expect(page.get_by_text("line 1.99")).to_be_in_viewport()
        await expect(page.get_by_text("line 1.0", exact=True)).not_to_be_in_viewport()
        await say(2)
        await expect(page.get_by_text("line 2.99")).to_be_in_viewport()
