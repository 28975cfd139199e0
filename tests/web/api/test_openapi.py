"""What the OpenAPI document says is what the API does."""

from __future__ import annotations

from typing import Any

from tests.web.fixtures import TOKENS, opened, stocked
from windlass._web.api.endpoints import ENDPOINTS
from windlass._web.api.openapi import document
from windlass._web.routes import ROUTES
from windlass._web.security.roles import Role


def references(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*(references(value) for value in part.values()))
    if isinstance(part, list | tuple):
        return set().union(*(references(value) for value in part))
    return set()


def test_every_line_of_the_table_is_routed_and_documented_once() -> None:
    routed = {(route.path, route.methods) for route in ROUTES if route.path.startswith("/api/v1")}
    assert routed == {(line.address, (line.method,)) for line in ENDPOINTS}
    documented = {
        (path, (method.upper(),)) for path, lines in document()["paths"].items() for method in lines
    }
    assert documented == routed
    names = [
        line["operationId"] for lines in document()["paths"].values() for line in lines.values()
    ]
    assert len(names) == len(set(names)) == len(ENDPOINTS)


def test_the_document_contains_exactly_what_it_refers_to() -> None:
    told = document()
    for reference in references(told):
        _, *steps = reference.split("/")
        part: Any = told
        for step in steps:
            part = part[step]
    used = {name for name in references(told) if "/schemas/" in name}
    assert used == {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}


def test_actions_document_their_role() -> None:
    for line in ENDPOINTS:
        operation = document()["paths"][line.address][line.method.lower()]
        assert str(line.role) in operation["description"]
        if line.method == "POST":
            assert line.role.includes(Role.OPERATOR), line.path


async def test_it_is_served_with_the_address_it_is_mounted_at() -> None:
    async with opened() as room, room.client() as viewer:
        await stocked(room)
        viewer.headers["authorization"] = f"Bearer {TOKENS[Role.VIEWER]}"
        answer = await viewer.get("/api/openapi.json")
        assert answer.status_code == 200
        assert answer.json()["openapi"] == "3.1.0"
        assert answer.json()["servers"] == [{"url": "/"}]
