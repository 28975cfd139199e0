"""No page keeps anybody out who uses a screen reader, a keyboard, or needs contrast."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from tests.web.browser.conftest import Scene
from tests.web.browser.walking import walking, whole
from tests.web.browsing import CHROMIUM, PHONE

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
    "job-retrying",
    "job-scheduled",
    "job-huge",
    "requeue",
    "schedule-run",
    "breaker-set",
}
"""Made of the same parts as others."""
THEMES: list[tuple[Literal["light", "dark"], list[str]]] = [("light", ALL), ("dark", COLOURS)]
RUN = """async (rules) => {
  const told = await axe.run(document, {runOnly: rules, resultTypes: ["violations"]});
  return told.violations.flatMap(({id, impact, nodes}) =>
    nodes.slice(0, 3).map((node) => `${impact} ${id}: ${node.target} ${node.failureSummary}`));
}"""


async def wrong_on(scene: Scene, pages: dict[str, str], **settings: Any) -> list[str]:
    """What axe-core says of these pages: everything in the light, then colours in the dark."""
    wrong: list[str] = []
    still: dict[str, Any] = {"reduced_motion": "reduce", "color_scheme": "light", **settings}
    async with walking(scene, **still) as tab:
        for name, path in pages.items():
            page = await whole(tab, name, path)
            await page.evaluate(AXE)
            for theme, rules in THEMES:
                await page.emulate_media(color_scheme=theme)
                wrong += [f"{name}, {theme}: {one}" for one in await page.evaluate(RUN, rules)]
    return wrong


async def test_axe_finds_nothing_on_any_page(scene: Scene) -> None:
    pages = {**scene.pages, **scene.questions}
    assert await wrong_on(scene, {name: pages[name] for name in pages.keys() - ALIKE}) == []


async def test_axe_finds_nothing_on_a_phone(scene: Scene) -> None:
    """There the tables are cards; the rest is as it is on a desk."""
    chosen = ("overview", "jobs", "job-failed", "queues", "schedule-edit", "workers")
    assert await wrong_on(scene, {name: scene.pages[name] for name in chosen}, viewport=PHONE) == []
