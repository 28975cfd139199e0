"""Every page, walked through as somebody would, without one complaint of the browser."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.web.browser.conftest import Scene
from tests.web.browser.driver import CHROMIUM, watched
from tests.web.browser.page_walk import walking
from windlass._web.render.templates import NAVIGATION

OPENED = {entry.path for entry in NAVIGATION}
"""Those that the navigation opens are read without scripts elsewhere."""
pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


async def test_every_link_of_the_navigation_leads_to_its_page(scene: Scene) -> None:
    async with walking(scene) as tab:
        page = await tab.open("/overview")
        names = [entry.title for entry in NAVIGATION]
        for name in names:
            await page.locator(".side > .nav").get_by_role("link", name=name, exact=True).click()
            here = page.locator(".side > .nav a[aria-current=page]")
            await expect(here).to_have_text(name)
            await expect(page.get_by_role("heading", level=1)).to_contain_text(name)


async def test_a_wrong_field_is_reported_and_nothing_is_changed(scene: Scene) -> None:
    async with watched(scene.chromium, scene.room, scene.root) as tab:
        page = await tab.open("/limits/set?limit=stripe")
        await page.get_by_label("Concurrency").fill("many")
        await page.get_by_role("button", name="Save limit").click()
        await expect(page.locator("main")).to_contain_text("whole number")
        await expect(page.get_by_label("Concurrency")).to_have_value("many")
        tab.wrong = [one for one in tab.wrong if "422" not in one]


async def test_without_scripts_every_page_can_be_read(scene: Scene) -> None:
    async with walking(scene, java_script_enabled=False) as tab:
        for path in {*scene.pages.values(), *scene.questions.values()} - OPENED:
            page = await tab.open(path)
            assert await page.get_by_role("heading", level=1).is_visible(), path


async def test_keys_the_palette_copying_and_times_work_as_they_say(scene: Scene) -> None:
    allowed = ["clipboard-read", "clipboard-write"]
    async with walking(scene, permissions=allowed) as tab:
        page = await tab.open("/jobs?task=shop.mail.send_receipt")
        await page.keyboard.press("/")
        await expect(page.get_by_label("Text in arguments or error")).to_be_focused()
        await page.keyboard.press("Escape")
        await page.locator("main h1").click()  # away from the field
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await page.keyboard.press("k")
        await expect(page.locator("tbody tr").first.locator("a.name")).to_be_focused()
        await page.keyboard.press("l")
        switch = page.locator(".side > .side-end [data-live]")
        await expect(switch).to_have_text("Paused")
        await page.keyboard.press("l")
        await expect(switch).to_have_text("Live")
        when = page.locator("tbody time").first
        assert re.fullmatch(r"(in )?\d+ \w+( \d+ \w+)?( ago)?|now", await when.inner_text())
        assert re.search(r"20\d\d", await when.get_attribute("title") or ""), "the exact one"
        await page.keyboard.press("?")
        await page.get_by_role("combobox", name="Search and commands").fill("big@example.org")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Text in arguments or error")).to_have_value(
            "big@example.org"
        )
        await page.keyboard.press("Control+k")
        await page.keyboard.type(scene.shop.succeeded)
        await page.keyboard.press("Enter")
        await expect(page.locator("#job-id")).to_have_text(scene.shop.succeeded)
        copy = page.locator("[data-copy='#job-id']")
        await copy.click()
        await expect(copy).to_have_text("Copied")
        assert await page.evaluate("() => navigator.clipboard.readText()") == scene.shop.succeeded
