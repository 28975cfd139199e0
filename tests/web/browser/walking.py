"""A tab that is told of everything that goes wrong in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Page, expect

from tests.web.browser.conftest import Scene
from tests.web.browsing import Watched, watched

__all__ = ["walking", "whole"]

POLICY = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));"""


WIDE = """() => {
  // Times grow while a page is open: measured with the longest.
  for (const time of document.querySelectorAll("time")) time.textContent = "59 m 59 s ago";
  return document.scrollingElement.scrollWidth - document.documentElement.clientWidth;
}"""


@asynccontextmanager
async def walking(scene: Scene, **settings: Any) -> AsyncIterator[Watched]:
    """A tab that also hears of what the policy blocks, and of answers that went wrong."""
    async with watched(scene.chromium, scene.room, scene.root, **settings) as tab:
        if settings.get("java_script_enabled", True):
            await tab.page.add_init_script(POLICY)
        tab.page.on(
            "response",
            lambda told: (
                tab.wrong.append(f"{told.status}: {told.url}") if told.status >= 400 else None
            ),
        )
        yield tab


async def whole(tab: Watched, name: str, path: str) -> Page:
    """Open a page: it has one title, and nothing of it sticks out to the side."""
    page = await tab.open(path)
    await expect(page.get_by_role("heading", level=1)).to_have_count(1)
    wide = await page.evaluate(WIDE)
    assert wide <= 0, f"{name} is {wide} px too wide"
    size = page.viewport_size or {"width": 0}
    await tab.picture(f"{name}-{size['width']}")
    return page
