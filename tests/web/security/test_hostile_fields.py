"""Text from outside, in every field that may hold it, on every page and every address of the API:
what a browser builds of a page has no element and no attribute more than with harmless text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.web.fixtures import (
    A_GROUP,
    A_JOB,
    BROWSER,
    CHANGING,
    READABLE,
    Room,
    form_token,
    opened,
    sample,
    shop,
    stocked,
)
from tests.web.security.hostile_texts import MARK
from tests.web.security.more_hostile_texts import CORPUS, HUGE
from tests.web.security.test_hostile_text import INVISIBLE, Reader
from windlass._app.parts import parts_of
from windlass._core.job.job import AttemptError, ClaimedJob, JobId, LimitUse, NewJob, Progress
from windlass._core.job.state import State
from windlass._core.job.transition import fail, succeed
from windlass._core.job.unique import UniqueKey
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.schedule.rules import Cron
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.journal import LogChunk, LogLine
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._web.security.authentication import HostAuthentication
from windlass._web.security.headers import SECURITY
from windlass._web.security.roles import Person, Role

Shape = frozenset[tuple[str, tuple[str, ...]]]
LEADS = {"href", "src", "action", "formaction", "hx-get", "hx-post", "data-live-url", "data-url"}


def test_the_corpus_is_large_and_every_string_of_it_can_be_recognised() -> None:
    assert len(set(CORPUS)) >= 200
    assert all(MARK in text or text for text in CORPUS)


async def filled(room: Room, texts: Sequence[str]) -> list[JobId]:
    """Every field of everything holds every text."""
    storage = await parts_of(room.app).storage()
    (queue,) = {_name(text) for text in texts[:1]}
    ids: list[JobId] = []
    await storage.workers.register(_worker("w1", texts[0], [queue]))
    for n, text in enumerate(texts):
        short, name = text[:120], _name(text)
        ids.append(JobId(f"{n + 1:032x}"))
        await storage.limits.define([LimitSpec(name=name, rate=Rate(1000, 0.001, 1000))])
        await storage.jobs.insert([_job(ids[-1], text, short, name, queue)])
        await room.app.admin.acting(short.replace("\x00", "")).queues.pause(name)
        if n % 10 == 0:
            await storage.workers.register(_worker(f"{n} {short}", short, [name]))
            await storage.limits.define(
                [LimitSpec(name=f"breaker {name}"[:128], breaker=Breaker())]
            )
    await _ended(storage, queue, dict(zip(ids, texts, strict=True)))
    failed = await room.app.admin.jobs.find(JobFilter(states=[State.FAILED]), limit=len(texts))
    for job in failed[::5]:  # a reason is part of the job, and of the audit
        text = texts[ids.index(job.id)]
        await room.app.admin.acting(text[:60]).jobs.discard(job.id, reason=text[:500])
    send = room.app.tasks["send"]
    for name, text in {_name(text): text for text in texts[::20]}.items():
        await room.app.admin.schedules.create(
            name, Cron("0 3 * * *"), send.options(tags=[text[:60]]).call(text[:1000])
        )
    return ids


def _name(text: str) -> str:
    """As much of it as a name may hold."""
    return "".join(char if char.isprintable() and char not in " :" else "_" for char in text)[:100]


def _worker(worker: str, text: str, queues: Sequence[str]) -> WorkerStart:
    return WorkerStart(
        id=worker,
        host=text[:200],
        pid=7,
        version=text[:60],
        queues=[*queues, text[:100]],
        tasks=[text[:100]],
        slots=1000,
        lease=timedelta(minutes=5),
    )


def _job(job: JobId, text: str, short: str, name: str, queue: str) -> NewJob:
    return NewJob(
        id=job,
        task=short,
        queue=queue,
        payload=json.dumps({text[:500]: text, "nested": [{"x": text}]}).encode(),
        tags=(short, "tag"),
        tenant=short,
        principal=short,
        correlation_id=short,
        trace=short,
        unique=UniqueKey(f"{short}{job}"[-200:]),
        limits=(LimitUse(name, key=short),),
    )


async def _ended(storage: Storage, queue: str, texts: dict[JobId, str]) -> None:
    """A third has failed, a third has succeeded, a third is running and says how far it is."""
    for _ in range(len(texts)):
        reply = await storage.jobs.claim("w1", [Want(queue, 100)], total=100)
        if not reply.jobs:
            break
        await storage.journal.append_logs(
            [
                LogChunk(job.claim, 1, [LogLine(reply.at, 30, texts[job.claim.job])])
                for job in reply.jobs
            ]
        )
        await storage.jobs.apply([_end(job, texts[job.claim.job]) for job in reply.jobs[::2]])
        running = [
            (job.claim, Progress(0.5, texts[job.claim.job][:900])) for job in reply.jobs[1::2]
        ]
        await storage.jobs.report(running)


def _end(job: ClaimedJob, text: str) -> Any:
    if job.claim.seq % 4 == 0:
        return succeed(job, by="w1", result=json.dumps({text[:100]: text}).encode())
    frame = f'  File "{text[:200]}", line 1, in {text[:50]}\n    {text}\n'
    error = AttemptError(text[:200], text, f"Traceback (most recent call last):\n{frame}{text}")
    return fail(job, by="w1", error=error)


def addresses(ids: Sequence[JobId], texts: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Every page and every address that reads, for a few of the texts where it is about one."""
    found: list[tuple[str, dict[str, str]]] = []
    for route in READABLE:
        if route.answers == "stream" or route.path == "/":
            continue
        for job, text in list(zip(ids, texts, strict=True))[:: max(len(ids) // 2, 1)]:
            name = _name(text)
            asked = {
                **dict.fromkeys(("queue", "limit", "schedule"), name),
                **dict.fromkeys(("task", "error", "place"), text[:100]),
                "job": job,
                "worker": "w1",
            }
            if route.path.startswith("/api/"):
                named = route.path.endswith("/one")
                word = route.path.split("/")[-2].removesuffix("s") if named else ""
                asked = {word: name} if named else {}
            found.append((route.path.replace("{job}", job), asked))
            if "{job}" not in route.path and route.path.startswith("/api/"):
                break
    found += [("/api/v1/jobs", {"size": "200"}), ("/jobs", {"text": texts[0][:100]})]
    lists = ("/queues", "/schedules", "/limits", "/errors")
    found += [(path, {"page": str(page)}) for path in lists for page in (2, 3)]
    return list(
        {(path, tuple(sorted(asked.items()))): (path, asked) for path, asked in found}.values()
    )


async def shapes(texts: Sequence[str], url: str = "memory://") -> dict[str, Shape]:
    """What each page is built of when everything holds these texts; each is checked on the way."""
    built: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
    async with opened(lambda: shop(url)) as room, await room.logged_in() as admin:
        ids = await filled(room, texts)
        for path, asked in addresses(ids, texts):
            answer = await admin.get(path, params=asked, follow_redirects=True)
            where = re.sub("[0-9a-f]{32}", "{job}", path)
            assert answer.status_code in {200, 400, 404, 414}, (path, answer.text[:500])
            for header, value in SECURITY.items():
                assert answer.headers[header] == value
            if "json" in answer.headers["content-type"]:
                json.loads(answer.content)
                continue
            built.setdefault(where, set()).update(shape_of(answer))
    return {where: frozenset(parts) for where, parts in built.items()}


def shape_of(answer: httpx.Response) -> Shape:
    """What a page is built of. Nothing in it is invisible, and nothing leads elsewhere."""
    where = answer.request.url.path
    assert not INVISIBLE.search(answer.text), (where, ascii(INVISIBLE.search(answer.text)))
    found: set[tuple[str, tuple[str, ...]]] = set()
    for tag, attributes in Reader(answer.text).tags:
        found.add((tag, tuple(sorted(attributes))))
        for name in LEADS & attributes.keys():
            lead = attributes[name]
            assert lead == "" or re.match(r"/(?!/)|#|\?", lead), (where, tag, name, lead)
    return frozenset(found)


def unlike(shape: Shape) -> set[tuple[str, str]]:
    """Elements with one attribute each: which of them stand together depends on what is shown."""
    return {(tag, name) for tag, names in shape for name in (*names, "")}


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_no_text_adds_an_element_or_an_attribute_to_any_page(
    backend: str, tmp_path: Path
) -> None:
    # What a store gives back is what was stored: a few texts of each kind show that it does.
    texts = CORPUS if backend == "memory" else CORPUS[::14]
    one, other = (
        "memory://" if backend == "memory" else f"sqlite:///{tmp_path}/{name}.db" for name in "ab"
    )
    harmless = await shapes([f"plain-{n}" for n in range(min(60, len(texts)))], one)
    hostile = await shapes(texts, other)
    everywhere = set().union(*(unlike(shape) for shape in harmless.values()))
    assert hostile.keys() == harmless.keys()
    for where, shape in hostile.items():
        # What an error's page is made of another one may be made of, too.
        assert unlike(shape) <= everywhere, (where, unlike(shape) - everywhere)


# --- what is sent ---------------------------------------------------------------------------------

SENT: dict[str, tuple[str, ...]] = {
    f"/jobs/edit?job={A_JOB}": ("due", "priority", "queue"),
    "/jobs/requeue?scope=all&queue=money": ("upto",),
    f"/jobs/discard?job={A_JOB}": ("reason",),
    f"/errors/requeue?{A_GROUP}": ("until",),
    "/limits/set?limit=smtp": ("concurrency", "rate"),
    "/breakers/set?task=pay": ("failures", "cool_down", "growth", "longest"),
    "/queues/settings?queue=mail": (
        "max_running",
        "backoff",
        "cool_down",
        "keep_succeeded",
        "keep_failed",
    ),
    "/schedules/edit?schedule=nightly": ("kind", "cron", "tz", "missed", "overlap", "most_missed"),
    "/schedules/edit?schedule=nightly&x=once": ("at", "starts", "ends", "jitter"),
    "/schedules/edit?schedule=nightly&x=every": ("period", "most_active"),
    "/login": ("name", "password", "wanted"),
}
"""Forms, and their fields."""
NAMED = ("queue", "limit", "task", "schedule", "worker", "job", "error", "place")
"""What the address of an order names."""


async def sent(text: str) -> set[tuple[str, str]]:
    """What the pages are built of that come back when this is put into every field of every form,
    and into the address of every order, by somebody who is called so.
    """
    built: set[tuple[str, str]] = set()
    door = HostAuthentication(lambda _: Person(text[:200], Role.ADMIN))
    async with opened(door=door, title=text[:300]) as room, room.client() as browser:
        await stocked(room)
        token = form_token((await browser.get("/queues/pause?queue=mail")).text)

        async def post(path: str, fields: dict[str, str]) -> None:
            form = {"token": token, **fields}
            answer = await browser.post(path, data=form, headers=BROWSER, follow_redirects=True)
            assert answer.status_code in {200, 400, 404, 409, 422}, (path, answer.status_code)
            built.update(unlike(shape_of(answer)))

        for path, names in SENT.items():
            for name in names:
                kind = {"kind": path.rpartition("x=")[2]} if "x=" in path else {}
                await post(path, {**kind, name: text})
        for route in CHANGING:  # what was wrong with it is told in a notice, or on a page
            if route.answers == "page" and route.path != "/logout":
                asked = urlencode(dict.fromkeys(NAMED, text[:120]))
                await post(f"{route.path}?{asked}", {})
        await post("/queues/pause?queue=mail", {})  # done, and on record under that name
        audit = await browser.get("/audit")
        built.update(unlike(shape_of(audit)))
        if MARK in text:
            assert MARK in audit.text
            return built
        for route in READABLE:  # what another page is made of may come back here, too
            if route.answers == "page":
                built.update(unlike(shape_of(await browser.get(sample(route)))))
    return built


async def test_hostile_fields_come_back_as_text() -> None:
    harmless = await sent("plain text that fits nowhere") | await sent("plain")
    # Many at once: an element or an attribute of any of them would be seen.
    for several in ("".join(CORPUS), "".join(CORPUS[::-9])):  # what is cut off differs
        found = await sent(several.replace("\x00", ""))
        assert found <= harmless, found - harmless


async def test_huge_texts_make_no_huge_pages() -> None:
    async with opened() as room, await room.logged_in() as admin:
        ids = await filled(room, HUGE)
        for path, asked in addresses(ids, HUGE):
            answer = await admin.get(path, params=asked, follow_redirects=True)
            assert answer.status_code in {200, 400, 404, 414}, path
            if "html" in answer.headers["content-type"]:
                assert len(answer.content) < 1_000_000, (path, len(answer.content))
