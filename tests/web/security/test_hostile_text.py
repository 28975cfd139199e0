"""Text from outside stays text, in every field of every page."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser

import httpx
import pytest

from tests.web.fixtures import BROWSER, Room, opened, shop
from tests.web.security.hostile_texts import HOSTILE, MARK
from windlass._app.parts import parts_of
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.workers import WorkerStart
from windlass._web.security.authentication import HostAuthentication
from windlass._web.security.roles import Person, Role

PAGES = ("/queues", "/workers", "/limits", "/audit")
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


OWN = {
    "html",
    "head",
    "meta",
    "title",
    "link",
    "script",
    "body",
    "a",
    "div",
    "header",
    "main",
    "section",
    "nav",
    "p",
    "h1",
    "h2",
    "ul",
    "li",
    "b",
    "small",
    "hr",
    "i",
    "kbd",
    "span",
    "svg",
    "path",
    "circle",
    "rect",
    "ellipse",
    "polygon",
    "polyline",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "time",
    "dl",
    "dt",
    "dd",
    "button",
    "details",
    "summary",
    "dialog",
    "form",
    "input",
    "label",
    "pre",
}
"""What our pages are made of."""


class Reader(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


async def filled(room: Room, text: str) -> None:
    """Everything that may hold text from outside holds it."""
    name = "".join(char if char.isprintable() and char != " " else "_" for char in text)[:128]
    storage = await parts_of(room.app).storage()
    await room.app.admin.queues.pause(name)
    await storage.workers.register(
        WorkerStart(
            id=f"w-{abs(hash(text))}",
            host=text[:200],
            pid=1,
            version=text[:60],
            queues=[text, name],
            slots=1,
            lease=timedelta(seconds=30),
        )
    )
    await storage.limits.define(
        [
            LimitSpec(name=text[:128].replace(":", "_"), rate=Rate(1, 1.0), concurrency=3),
            LimitSpec(name=f"breaker {text}"[:128].replace(":", "_"), breaker=Breaker()),
        ]
    )


def harmless(page: httpx.Response) -> None:
    """The markup is the page's own: no tag more, no attribute that a browser would obey."""
    read = Reader(page.text)
    assert not INVISIBLE.search(page.text), ascii(INVISIBLE.search(page.text))
    for tag, attributes in read.tags:
        assert tag in OWN, (tag, attributes)
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style"
            if name in {"href", "src", "action", "hx-get", "data-hx-get"}:
                assert value == "" or re.match(r"/(?!/)|#", value), (tag, name, value)
    shown = [*read.words, *(attributes.get("value", "") for _, attributes in read.tags)]
    assert any(MARK in text for text in shown), "it is shown, as text"


async def test_a_hostile_name_is_shown_and_not_executed() -> None:
    async with opened() as room, await room.logged_in() as admin:
        for text in HOSTILE:
            await filled(room, text)
        for path in PAGES:
            harmless(await admin.get(path))


SEVERAL = ["".join(HOSTILE[n : n + 4]) for n in range(0, len(HOSTILE), 4)]
"""A few at a time: a notice holds no more."""


async def test_hostile_input_is_shown_and_not_executed() -> None:
    async with opened() as room, await room.logged_in() as admin:
        for text in SEVERAL:
            harmless(await admin.get("/queues/pause", params={"queue": text}))
            # A name that no queue may have comes back in the notice.
            await room.order(admin, "/queues/pause", {"queue": f"{text} {MARK}"})
            harmless(await admin.get("/queues"))
            assert MARK not in (await admin.get("/queues")).text, "a notice is shown once"


@pytest.mark.parametrize("text", ["".join(HOSTILE), *HOSTILE[-9:]])
async def test_names_of_people_and_of_the_dashboard_itself_are_text_too(text: str) -> None:
    door = HostAuthentication(lambda _: Person(text, Role.ADMIN))
    async with opened(door=door, title=text) as room, room.client() as browser:
        harmless(await browser.get("/queues"))
    async with opened() as room, room.client() as browser:
        form = {"name": text, "password": "x", "wanted": text}
        harmless(await browser.post("/login", data=form, headers=BROWSER))


async def test_a_very_long_name_makes_no_long_answer() -> None:
    async with opened() as room, await room.logged_in() as admin:
        answer = await room.order(admin, "/queues/pause", {"queue": "x" * 3000})
        assert answer.status_code == 303
        page = await admin.get("/queues")
        assert "must be 1 to 128" in page.text
        assert len(page.text) < 100_000


async def test_names_with_every_kind_of_character_can_be_paused_and_resumed() -> None:
    async with opened(shop) as room, await room.logged_in() as admin:
        for name in ("a/b", "a?b=c&d", "a#b", "..", "%2e", "ü–ß", "a+b", '"', "<i>"):
            answer = await room.order(admin, "/queues/pause", {"queue": name})
            assert answer.status_code == 303
            assert (await room.app.admin.queues.get(name)).paused, name
            page = Reader((await admin.get("/queues")).text)
            (link,) = [
                tag["href"]
                for _, tag in page.tags
                if tag.get("data-command") == f"Resume queue {name}"
            ]
            question = await admin.get(link)
            assert question.status_code == 200, link
