"""Plugins: what they bring and may do."""

from __future__ import annotations

from tests.web.fixtures import opened
from tests.web.page_text import links, words
from windlass import Windlass
from windlass._core.schedule.rules import Cron
from windlass._core.values.grants import Grants
from windlass._web.security.roles import Role
from windlass.plugins import Registrar


class Newsletter:
    """Sends <b>the</b> letter."""

    name = "news"

    def register(self, registrar: Registrar) -> None:
        @registrar.schedule(Cron("0 8 * * *"))
        @registrar.task(concurrency=5, timeout=30, max_attempts=7)
        async def weekly() -> None:
            """To every reader."""


def with_a_plugin() -> Windlass:
    app = Windlass("memory://")
    grants = Grants(tasks=True, schedules=True, queues=["mail"], max_running=4)
    app.install(Newsletter(), grants=grants)
    return app


async def test_plugins_are_shown_with_their_grants_tasks_and_schedules() -> None:
    async with opened(with_a_plugin) as room, await room.logged_in(Role.VIEWER) as viewer:
        page = (await viewer.get("/plugins")).text
        read = words(page)
        assert "news Sends <b>the</b> letter. 0 of 4 running" in read
        assert "May add tasks, schedules Queues mail" in read
        assert "news.weekly To every reader. mail 5 30 s 7" in read
        assert "at 08:00 every day, UTC news.weekly" in read
        assert links(page, "/schedules/one?schedule=news.weekly")


async def test_without_plugins_the_page_says_how_to_grant_one() -> None:
    async with opened() as room, await room.logged_in() as admin:
        assert "No plugin" in (await admin.get("/plugins")).text
