"""Every page, in the light and in the dark, on a desk, on small screens and on a phone: nothing
sticks out, no table hides its last columns, and it keeps nobody out who uses a screen reader, a
keyboard, or needs contrast.

A page is opened once and then turned over: opening is what takes long.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, ViewportSize, expect
from playwright.async_api import TimeoutError as PlaywrightTimeout

from tests.web.browser.conftest import Scene
from tests.web.browser.driver import CHROMIUM, DESKTOP, PHONE, Watched
from tests.web.browser.page_walk import walking
from windlass._web.routes import ROUTES

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
AXE = (Path(__file__).parent / "vendor/axe.min.js").read_text(encoding="utf-8")
ALL = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast", "link-in-text-block"]
"""What the theme alone decides."""
ALIKE = {
    "jobs-failed",
    "job-succeeded",
    "job-retrying",
    "job-scheduled",
    "job-huge",
    "requeue",
    "cancel-flow",
    "schedule-run",
    "limit-set",
    "breaker-set",
}
"""Made of the same parts as others: axe is not asked again."""
CARDS = {"overview", "jobs", "job-failed", "flow", "queues", "schedule-edit", "workers"}
"""What axe sees on a phone, too: there the tables are cards, and the rest is as it is on a desk."""
RUN = """async (rules) => {
  const told = await axe.run(document, {runOnly: rules, resultTypes: ["violations"]});
  return told.violations.flatMap(({id, impact, nodes}) =>
    nodes.slice(0, 3).map((node) => `${impact} ${id}: ${node.target} ${node.failureSummary}`));
}"""
WIDE = """() => {
  // Times grow while a page is open: measured with the longest.
  for (const time of document.querySelectorAll("time")) time.textContent = "59 m 59 s ago";
  const parts = [document.scrollingElement, ...document.querySelectorAll(".table-wrap, .card")];
  return Math.max(...parts.map((part) => part.scrollWidth - part.clientWidth));
}"""
Theme = Literal["light", "dark"]
LOOKS: list[tuple[str, ViewportSize, Theme]] = [
    ("desk", ViewportSize(width=DESKTOP["width"], height=DESKTOP["height"]), "light"),
    ("desk", ViewportSize(width=DESKTOP["width"], height=DESKTOP["height"]), "dark"),
    ("laptop", ViewportSize(width=1366, height=768), "dark"),
    ("small", ViewportSize(width=1280, height=720), "dark"),
    ("phone", ViewportSize(width=PHONE["width"], height=PHONE["height"]), "dark"),
    ("phone", ViewportSize(width=PHONE["width"], height=PHONE["height"]), "light"),
]


def rules_for(name: str, size: str, theme: Theme) -> list[str]:
    """What axe is asked of this look of a page."""
    if size in ("laptop", "small") or name in ALIKE or (size == "phone" and name not in CARDS):
        return []
    return ALL if theme == "light" else COLOURS


async def too_wide(page: Page) -> int:
    """How many pixels stand out; a chart takes a frame or two to follow the window."""
    with suppress(PlaywrightTimeout):
        await page.wait_for_function(f"() => ({WIDE})() <= 0", timeout=3_000)
        return 0
    return int(await page.evaluate(WIDE))


async def turned_over(tab: Watched, page: Page, name: str) -> list[str]:
    """What is wrong with an open page, in any of its looks."""
    wrong = []
    for size, viewport, theme in LOOKS:
        await page.set_viewport_size(viewport)
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        if wide := await too_wide(page):
            wrong.append(f"{name}, {size}: {wide} px too wide")
        if rules := rules_for(name, size, theme):
            wrong += [f"{name}, {theme}: {one}" for one in await page.evaluate(RUN, rules)]
        await tab.picture(f"{name}-{theme}-{size}")
    return wrong


async def seen(scene: Scene, pages: dict[str, str]) -> list[str]:
    """What is wrong with these pages."""
    wrong = []
    async with walking(scene) as tab:
        await tab.page.add_init_script(AXE)
        for name, path in pages.items():
            await tab.page.set_viewport_size(LOOKS[0][1])
            page = await tab.open(path)
            await expect(page.get_by_role("heading", level=1)).to_have_count(1)
            wrong += await turned_over(tab, page, name)
    return wrong


async def test_pages_about_jobs_look_right_everywhere(scene: Scene) -> None:
    pages = {name: path for name, path in scene.pages.items() if path.startswith("/jobs")}
    assert await seen(scene, pages) == []


async def test_pages_about_flows_look_right_everywhere(scene: Scene) -> None:
    pages = {name: path for name, path in scene.pages.items() if path.startswith("/flows")}
    assert await seen(scene, pages) == []


async def test_other_pages_look_right_everywhere(scene: Scene) -> None:
    elsewhere = ("/jobs", "/flows")
    pages = {name: path for name, path in scene.pages.items() if not path.startswith(elsewhere)}
    assert await seen(scene, pages) == []


async def test_questions_look_right_everywhere(scene: Scene) -> None:
    assert await seen(scene, scene.questions) == []


async def test_the_way_in_looks_right_everywhere(scene: Scene) -> None:
    async with walking(scene) as tab:
        await tab.page.context.clear_cookies()
        await tab.page.add_init_script(AXE)
        page = await tab.open("/queues")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        assert await turned_over(tab, page, "login") == []
        tab.wrong = [one for one in tab.wrong if "401" not in one]


async def test_no_page_is_left_out(scene: Scene) -> None:
    """A page that nobody looks at in a browser is one whose script may be broken."""
    known = {urlsplit(path).path for path in scene.pages.values()} | {
        "/",
        "/jobs/{job}",
        "/flows/{flow}",
        "/flows/{flow}/parts/{part}",
    }
    pages = {
        route.path
        for route in ROUTES
        if route.answers == "page" and route.role is not None and route.methods == ("GET",)
    }
    assert pages <= known
