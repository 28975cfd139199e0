"""Requests that nobody would think of, made of the OpenAPI document: whatever comes, the API
answers as the document says, and never by a mistake of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, seed, settings

from tests.web.fixtures import HOST, TOKENS, Room, shop, stocked
from windlass._web.api.openapi import document
from windlass._web.security.roles import Role

SCHEMA = schemathesis.openapi.from_dict(dict(document()))
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]
EACH = 5
"""Requests for each of the fifty addresses."""

Knock = Callable[[requests.PreparedRequest], httpx.Response]


@pytest.fixture(scope="module")
def knock() -> Iterator[Knock]:
    """Sends a request to a dashboard that stays open from one to the next."""
    with asyncio.Runner() as runner:
        app = shop()
        room = Room(app)
        client = room.client()

        async def begin() -> None:
            await app.__aenter__()
            await stocked(room)

        def send(asked: requests.PreparedRequest) -> httpx.Response:
            headers = {
                "authorization": f"Bearer {TOKENS[Role.ADMIN]}",
                "content-type": str(asked.headers.get("content-type", "application/json")),
            }
            url = httpx.URL(str(asked.url))
            body: Any = asked.body
            return runner.run(client.request(str(asked.method), url, content=body, headers=headers))

        runner.run(begin())
        yield send
        runner.run(client.aclose())
        runner.run(app.close())


@SCHEMA.parametrize()
@seed(8383)
@settings(
    max_examples=EACH,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_request_is_answered_as_documented(
    case: schemathesis.Case[Any], knock: Knock
) -> None:
    asked = requests.Request(**case.as_transport_kwargs(base_url=f"http://{HOST}")).prepare()
    case.validate_response(knock(asked), checks=CHECKS)
