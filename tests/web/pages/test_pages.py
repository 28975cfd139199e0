"""What the pages show, and what their orders do."""

from __future__ import annotations

import logging
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from tests.web.fixtures import Room, opened
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._storage.protocol.workers import WorkerStart
from windlass._web.security.roles import Role


class Words(HTMLParser):
    """The text of a page, without its markup."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def words(page: str) -> str:
    return " ".join(" ".join(Words(page).parts).split())


async def a_worker(room: Room, name: str, **more: object) -> None:
    storage = await parts_of(room.app).storage()
    start = {"host": "box", "pid": 7, "version": "0.1.0", "queues": ["mail"], "slots": 4}
    lease = timedelta(seconds=30)
    await storage.workers.register(WorkerStart(**{**start, "id": name, "lease": lease, **more}))  # type: ignore[arg-type]


async def test_the_first_page_is_the_first_there_is() -> None:
    async with opened() as room, await room.logged_in() as admin:
        page = await admin.get("/", follow_redirects=True)
        assert page.status_code == 200
        assert 'aria-current="page"' in page.text


async def test_queues_are_shown_with_what_waits_and_whether_they_may_run() -> None:
    async with opened() as room, await room.logged_in() as admin:
        send = room.app.tasks.find("send")
        assert send is not None
        for n in range(3):
            await send.enqueue(f"a{n}@example.com")
        await room.app.admin.queues.set("mail", max_running=2)
        page = words((await admin.get("/queues")).text)
        assert "mail open 3 now 0 no worker 0 0 Pause" in page
        assert "money open" in page  # a task names it
        await room.app.admin.queues.pause("mail")
        assert "mail paused 3" in words((await admin.get("/queues")).text)


async def test_pausing_goes_all_the_way_and_is_on_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="windlass")
    async with opened() as room, await room.logged_in(Role.OPERATOR) as operator:
        question = await operator.get("/queues/pause?queue=mail")
        assert "Pause queue mail?" in question.text
        answer = await room.order(operator, "/queues/pause", {"queue": "mail"})
        assert answer.headers["location"] == "/queues"
        assert (await room.app.admin.queues.get("mail")).paused
        page = await operator.get("/queues")
        assert "Queue mail is paused." in page.text
        assert "Queue mail is paused." not in (await operator.get("/queues")).text  # once
        await room.order(operator, "/queues/resume", {"queue": "mail"})
        assert not (await room.app.admin.queues.get("mail")).paused
        assert "the-operator: Queue mail is paused." in caplog.text
        newest = [one.note for one in await room.app.admin.audit.list(limit=2)]
        assert [note.who for note in newest] == ["dashboard:the-operator"] * 2
        assert [note.what for note in newest] == ["queues.resume", "queues.pause"]


async def test_an_invalid_action_is_explained_on_the_page_it_came_from() -> None:
    async with opened() as room, await room.logged_in() as admin:
        answer = await room.order(admin, "/limits/fill", {"limit": "smpt"})
        assert answer.headers["location"] == "/limits"
        page = await admin.get("/limits")
        assert 'class="notice bad"' in page.text
        assert "smpt" in page.text
        assert (await admin.get("/queues/pause")).status_code == 400


async def test_workers_are_shown_as_they_are_heard_of() -> None:
    async with opened() as room, await room.logged_in() as admin:
        assert "windlass worker" in (await admin.get("/workers")).text  # what to do about none
        await a_worker(room, "w1")
        await a_worker(room, "w2", lease=timedelta(0))
        storage = await parts_of(room.app).storage()
        await a_worker(room, "w3")
        await storage.workers.leave("w3", [])
        page = words((await admin.get("/workers")).text)
        assert "box w1 · pid 7 live 0 of 4 mail 0.1.0 –" in page
        assert "w2 · pid 7 silent" in page
        assert "w3 · pid 7 gone now –" in page
        assert page.index("w1") < page.index("w2") < page.index("w3")


async def test_limits_and_breakers_are_shown_and_can_be_filled_emptied_and_closed() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await parts_of(
            room.app
        ).workers.dependencies()  # what a worker does first: it defines what tasks need
        page = words((await admin.get("/limits")).text)
        assert "smtp 2 at once, 5 per 1 s" in page
        assert "at most 1 h closed 0 of 2" in page
        answer = await room.order(admin, "/limits/empty", {"limit": "smtp"})
        assert answer.status_code == 303
        (report,) = await room.app.admin.limits.list()
        assert report.budgets[0].spent_until is not None
        assert "The bucket of smtp is empty." in (await admin.get("/limits")).text
        await room.order(admin, "/limits/fill", {"limit": "smtp"})
        (report,) = await room.app.admin.limits.list()
        assert not report.budgets or report.budgets[0].spent_until is None
        closed = await room.order(admin, "/breakers/close", {"task": "pay"})
        assert closed.headers["location"] == "/limits"


async def test_an_empty_store_is_explained() -> None:
    async with opened(lambda: Windlass("memory://")) as room, await room.logged_in() as admin:
        assert "No queue yet" in (await admin.get("/queues")).text
        assert "No worker yet" in (await admin.get("/workers")).text
        assert "No limit" in (await admin.get("/limits")).text


async def test_a_part_that_is_fetched_again_comes_without_the_frame() -> None:
    async with opened() as room, await room.logged_in() as admin:
        whole = (await admin.get("/queues")).text
        part = (await admin.get("/queues", headers={"hx-request": "true"})).text
        assert "<html" in whole
        assert "<html" not in part
        assert "<nav" not in part
        assert 'id="live-queues"' in part
        notice = await room.order(admin, "/queues/pause", {"queue": "mail"})
        assert notice.status_code == 303
        await admin.get("/queues", headers={"hx-request": "true"})
        assert "is paused." in (await admin.get("/queues")).text  # the part did not eat it


async def test_times_are_shown_with_the_exact_one_beside() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await a_worker(room, "w1")
        page = (await admin.get("/workers")).text
        assert "<time datetime=" in page
        assert ' UTC" data-relative>' in page
