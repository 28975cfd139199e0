"""Every page, walked through as somebody would, without one complaint of the browser."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from tests.web.browser.conftest import Scene
from tests.web.browser.walking import walking, whole
from tests.web.browsing import CHROMIUM, PHONE, watched
from windlass.web.navigation import NAVIGATION
from windlass.web.routes import ROUTES

OPENED = {entry.path for entry in NAVIGATION}
"""Those that the navigation opens are read without scripts elsewhere."""
pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


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
