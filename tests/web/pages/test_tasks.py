"""Tasks: jobs, outcomes and the last error of each."""

from __future__ import annotations

from tests.web.fixtures import opened
from tests.web.page_text import links, words
from windlass import Windlass
from windlass._web.pages.tasks import read_live_state
from windlass._web.security.roles import Role
from windlass.testing import drain


def a_shop() -> Windlass:
    app = Windlass("memory://", max_attempts=1)

    @app.task(name="send", queue="mail")
    async def send() -> None: ...

    @app.task(name="fail")
    async def fail() -> None:
        raise ValueError("<b>no</b>")

    return app


async def test_tasks_are_shown_before_their_first_job_and_with_their_last_error() -> None:
    async with opened(a_shop) as room, await room.logged_in(Role.VIEWER) as viewer:
        read = words((await viewer.get("/tasks")).text)
        assert "send mail 0 0 0 0 0 0" in read
        assert "Coalesced" not in read
        before = await read_live_state(room.app.admin)
        await room.app.tasks["fail"].enqueue()
        for _ in range(3):
            await room.app.tasks["send"].options(delay=60, key="k").enqueue()
        await drain(room.app)
        assert await read_live_state(room.app.admin) != before
        page = (await viewer.get("/tasks", params={"range": "1h"})).text
        assert "ValueError: <b>no</b>" in words(page)
        assert "send mail 0 1 0 0 0 0 2" in words(page)
        queue = (await viewer.get("/queues/one", params={"queue": "mail"})).text
        assert "Coalesced" in words(queue)
        assert "send 0 0 0 2" in words(queue)
        assert links(page, "/jobs")
        assert links(page, "/errors")
