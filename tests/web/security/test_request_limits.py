"""What a request may be made of: just below, at and above each bound; and words that a store might
take for its own.
"""

from __future__ import annotations

import ast
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

import windlass._web
from tests.web.fixtures import BROWSER, TOKENS, Room, form_token, opened, shop, stocked
from windlass._web.request import MAX_BODY_BYTES, MAX_FORM_FIELDS
from windlass._web.security.roles import Role

V1 = "/api/v1"
LONGEST_URL = 4096


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with opened(lambda: shop(f"sqlite:///{tmp_path}/jobs.db")) as one:
        await stocked(one)
        yield one


def program(room: Room) -> httpx.AsyncClient:
    client = room.client()
    client.headers["authorization"] = f"Bearer {TOKENS[Role.ADMIN]}"
    return client


async def test_bodies_and_addresses_are_taken_to_their_bound_and_no_further(room: Room) -> None:
    async with program(room) as admin, await room.logged_in() as person:
        frame = len(b'{"task":"send","arguments":{"to":""}}')
        for size, code in (
            (MAX_BODY_BYTES - 1, 422),
            (MAX_BODY_BYTES, 422),
            (MAX_BODY_BYTES + 1, 413),
        ):
            # A megabyte is what arguments may have: who sends more is told so, if it is read.
            body = {"task": "send", "arguments": {"to": "x" * (size - frame)}}
            content = json.dumps(body, separators=(",", ":")).encode()
            assert len(content) == size
            headers = {"content-type": "application/json"}
            answer = await admin.post(f"{V1}/enqueue", content=content, headers=headers)
            assert answer.status_code == code, (size, answer.text)
        for length, code in ((-1, 200), (0, 200), (1, 414)):
            query = "x" * (LONGEST_URL - len("/queues") - len("a=") + length)
            assert (await admin.get(f"/queues?a={query}")).status_code == code, length
        (name, value) = ("x-large", "x" * 16 * 1024)
        for length, code in ((15 * 1024, 200), (16 * 1024, 431)):
            assert (await admin.get("/queues", headers={name: value[:length]})).status_code == code
        told = await admin.get(f"{V1}/queues", headers={name: value})
        assert (told.status_code, told.json()["code"]) == (431, "large_head")
        token = form_token((await person.get("/queues")).text)
        for fields, code in ((MAX_FORM_FIELDS, 303), (MAX_FORM_FIELDS + 1, 400)):
            form = "&".join([f"token={token}", *(f"f{n}=1" for n in range(fields - 1))])
            kind = {"content-type": "application/x-www-form-urlencoded"}
            answer = await person.post(
                "/queues/pause?queue=mail", content=form, headers={**BROWSER, **kind}
            )
            assert answer.status_code == code, fields


HEAVY = {
    "deep": b"[" * 500_000,
    "deep objects": b'{"a":' * 100_000,
    "a huge number": b'{"queue": ' + b"9" * 1_000_000 + b"}",
    "a huge exponent": b'{"queue": 1e999999999}',
    "many names": b"{" + b",".join(b'"%d":1' % n for n in range(100_000)) + b"}",
    "the same name": b"{" + b",".join([b'"queue":"x"'] * 100_000) + b"}",
    "half a character": b'{"queue": "\\ud800"}',
    "no text": b'{"queue": "\xff\xfe"}',
    "nul": b'{"queue": "a\\u0000b"}',
    "nothing at all": b"\x00",
}


@pytest.mark.parametrize("body", HEAVY.values(), ids=HEAVY.keys())
async def test_no_body_takes_long_or_breaks_anything(room: Room, body: bytes) -> None:
    async with program(room) as admin:
        headers = {"content-type": "application/json"}
        begun = time.process_time()
        answer = await admin.post(f"{V1}/queues/pause", content=body, headers=headers)
        assert time.process_time() - begun < 1
        expected = 200 if b'"x"' in body else 422  # the last of many is meant, as everywhere
        assert answer.status_code == expected, answer.text[:300]
        assert len(answer.content) < 5_000


WORDS = (
    "' OR 1=1 --",
    '" OR ""="',
    "'; DROP TABLE jobs; --",
    "money' UNION SELECT * FROM jobs --",
    "$$;SELECT 1;$$",
    "%",
    "_" * 5,
    "*",
    "?1",
    ":queue",
    "\\",
    "{}",
    "\r\nSET x 1\r\n",
)
FILTERS = (
    *("queue", "task", "tag", "tenant", "principal", "key", "correlation_id", "parent"),
    *("worker", "error", "frame", "text"),
)


async def test_query_syntax_of_a_store_is_searched_as_text(room: Room) -> None:
    async with program(room) as admin:
        for name in FILTERS:
            for word in WORDS:
                asked = f"pay/{word}" if name == "key" else word  # a key is named with its task
                found = await admin.get(f"{V1}/jobs", params={name: asked})
                assert found.status_code == 200, (name, word, found.text)
                # The arguments of the job, and of both in the flow, are {}: only that is found.
                expected = 3 if (name, word) == ("text", "{}") else 0
                assert len(found.json()["jobs"]) == expected, (name, word)
                page = await admin.get("/jobs", params={name: asked})
                assert page.status_code == 200, (name, word)
        for word in WORDS:
            assert (await admin.get(f"{V1}/audits", params={"subject": word})).json() == []
            assert (await admin.get(f"{V1}/errors", params={"queue": word})).json()["groups"] == []
            one = await admin.get(f"{V1}/schedules/one", params={"schedule": word})
            assert one.status_code == 404
        assert len((await admin.get(f"{V1}/jobs")).json()["jobs"]) == 3


# --- secrets --------------------------------------------------------------------------------------

SECRET = ("token", "secret", "password", "cookie", "hashed", "link")


def compared(source: str) -> Iterator[int]:
    """Lines where something that is called like a secret is compared with ``==``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            for side in (node.left, *node.comparators):
                name = getattr(side, "id", getattr(side, "attr", ""))
                if any(word in name.lower() for word in SECRET):
                    yield node.lineno


def test_secrets_are_compared_in_constant_time() -> None:
    assert list(compared("if given == self.token: ...")) == [1]
    assert list(compared("ok = password != found")) == [1]
    for path in sorted(Path(windlass._web.__file__).parent.rglob("*.py")):
        assert list(compared(path.read_text())) == [], path
