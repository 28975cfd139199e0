"""A tab that is told of everything that goes wrong in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.web.browser.conftest import Scene
from tests.web.browser.driver import Watched, watched

__all__ = ["walking"]

POLICY = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));"""


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
