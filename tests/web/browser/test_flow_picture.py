"""The picture of a flow, used by keyboard and followed live."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.web.browser.conftest import Scene
from tests.web.browser.driver import CHROMIUM, PHONE
from tests.web.browser.page_walk import walking
from windlass import Flow

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


async def test_boxes_are_reached_by_keyboard_and_lead_to_their_jobs(scene: Scene) -> None:
    async with walking(scene) as tab:
        page = await tab.open(f"/flows/{scene.shop.flow}")
        await page.locator("#graph").focus()
        await page.keyboard.press("Tab")
        await expect(page.locator("#box-0")).to_be_focused()
        await page.keyboard.press("Tab")
        await expect(page.locator("#box-1")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("one per customer")
        assert await page.locator("tbody tr").count() == 20


async def test_the_picture_follows_the_flow_and_keeps_the_focus(scene: Scene) -> None:
    app = scene.shop.app
    send = app.tasks["shop.mail.send_receipt"]
    flow = Flow("followed")
    first = flow.add(send.options(delay=7200, queue="followed").call("a@example.org"))
    flow.add(send.options(queue="followed").call("b@example.org"), after=first)
    run = await app.start(flow)
    # Its own worker: jobs of other tests may have all slots of the shop's.
    async with app.worker(queues=["followed"]), walking(scene) as tab:
        page = await tab.open(f"/flows/{run.id}")
        await expect(page.locator("#box-0 .state")).to_have_text("active")
        await expect(page.locator("#box-1 .state")).to_have_text("blocked")
        await page.locator("#box-1").focus()
        await app.admin.jobs.run_now(first.id)
        await run.wait(30)
        await expect(page.locator("#box-1 .state")).to_have_text("succeeded")
        await expect(page.locator("#box-1")).to_be_focused()
        await expect(page.locator(".graph .box.end .state")).to_have_text("succeeded")


async def test_a_folded_box_opens_and_closes(scene: Scene) -> None:
    async with walking(scene) as tab:
        page = await tab.open(f"/flows/{scene.shop.large_flow}")
        boxes = page.locator(".graph .box")
        folded = await boxes.count()
        assert folded < 20
        await page.locator(".graph .box.fold").first.click()
        await expect(boxes).to_have_count(folded + 19)
        await page.get_by_role("link", name="Fold all parts").click()
        await expect(boxes).to_have_count(folded)


async def test_arrow_keys_move_from_box_to_box_and_others_zoom(scene: Scene) -> None:
    async with walking(scene) as tab:
        page = await tab.open(f"/flows/{scene.shop.large_flow}?open=all")
        svg, frame = page.locator("#graph svg"), page.locator("#graph")
        box = await svg.evaluate("one => one.getBoundingClientRect().width")
        await page.locator("#box-0").focus()
        await page.keyboard.press("ArrowRight")
        assert await page.evaluate("document.activeElement.id") != "box-0"
        await page.keyboard.press("-")
        assert await svg.evaluate("one => one.getBoundingClientRect().width") < box
        await page.get_by_role("button", name="Fit").click()
        wide, high = await frame.evaluate(
            "one => [one.scrollWidth - one.clientWidth, one.scrollHeight - one.clientHeight]"
        )
        assert (wide, high) == (0, 0)
        assert await page.locator("html.far").count() == 1
        await page.get_by_role("button", name="100 %").click()
        assert await svg.evaluate("one => one.getBoundingClientRect().width") == box


async def test_the_zoom_stays_when_the_flow_moves_on(scene: Scene) -> None:
    app = scene.shop.app
    send = app.tasks["shop.mail.send_receipt"]
    flow = Flow("zoomed")
    first = flow.add(send.options(delay=7200).call("a@example.org"))
    run = await app.start(flow)
    async with walking(scene) as tab:
        page = await tab.open(f"/flows/{run.id}")
        svg = page.locator("#graph svg")
        await page.get_by_role("button", name="Zoom in").click()
        wide = await svg.evaluate("one => one.getBoundingClientRect().width")
        await app.admin.jobs.run_now(first.id)
        await expect(page.locator("#box-0 .state")).to_have_text("succeeded")
        assert await svg.evaluate("one => one.getBoundingClientRect().width") == wide


async def test_the_place_of_a_job_is_shown_and_in_view(scene: Scene) -> None:
    async with walking(scene, viewport=PHONE) as tab:
        page = await tab.open(f"/flows/{scene.shop.flow}?part=5#graph")
        await expect(page.locator(".box.here")).to_be_in_viewport()


async def test_on_a_phone_the_picture_scrolls_inside_its_frame(scene: Scene) -> None:
    async with walking(scene, viewport=PHONE) as tab:
        page = await tab.open(f"/flows/{scene.shop.flow}")
        frame = page.locator("#graph")
        inner, outer = await frame.evaluate("one => [one.scrollWidth, one.clientWidth]")
        assert inner > outer
        await page.locator("#box-1").scroll_into_view_if_needed()
        assert await page.locator("#box-1").is_visible()
        wide = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
        assert await page.evaluate(wide) <= 0
