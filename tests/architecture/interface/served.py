"""What the dashboard serves: pages, addresses for programs, and the OpenAPI document."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import Route

import windlass
from tests.architecture.source import PACKAGE
from windlass import Windlass, errors

Part = Mapping[str, Any]


@functools.cache
def _dashboard() -> Starlette:
    return Windlass("memory://").dashboard(auth=lambda _: "admin")


def _routes() -> Iterator[tuple[str, str]]:
    for route in _dashboard().routes:
        assert isinstance(route, Route)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, route.path


def pages() -> Iterator[str]:
    yield from (f"{method} {path}" for method, path in _routes() if not path.startswith("/api/"))


def addresses() -> Iterator[str]:
    yield from (f"{method} {path}" for method, path in _routes() if path.startswith("/api/"))


@functools.cache
def _document() -> Part:
    async def ask() -> Any:
        transport = httpx.ASGITransport(_dashboard())
        headers = {"authorization": "Bearer none"}
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return (await client.get("/api/openapi.json", headers=headers)).json()

    document: Part = asyncio.run(ask())
    return document


def _operations() -> Iterator[tuple[str, Part]]:
    for path, methods in _document()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def openapi_requests() -> Iterator[str]:
    """Parameters, and the fields of bodies."""
    for address, operation in _operations():
        yield address
        for parameter in operation.get("parameters", ()):
            needed = " required" if parameter.get("required") else ""
            yield f"{address} {parameter['in']} {parameter['name']}{needed}"
        if "requestBody" in operation:
            for field in _fields_of(operation["requestBody"]):
                yield f"{address} body {field}"


def openapi_responses() -> Iterator[str]:
    for address, operation in _operations():
        yield f"{address} answers {' '.join(sorted(operation['responses']))}"
        for code, response in operation["responses"].items():
            if "$ref" not in response:
                yield from (f"{address} {code} {field}" for field in _fields_of(response))
    for code, response in _document()["components"]["responses"].items():
        for field in _fields_of(response):
            yield f"{code} {field}"


def openapi_names() -> Iterator[str]:
    """What a generated client calls its functions and types: both follow names in the code."""
    yield from (f"operation {operation['operationId']}" for _, operation in _operations())
    yield from (f"schema {name}" for name in _document()["components"]["schemas"])


def error_codes() -> Iterator[str]:
    """The kind by which a stored error is found, and the code that programs get."""
    for name in windlass.__all__:
        found = getattr(windlass, name)
        if isinstance(found, type) and issubclass(found, BaseException):
            yield f"{found.__module__}.{found.__qualname__}"
    for file in PACKAGE.rglob("*.py"):
        for status, word in re.findall(r"PageError\(\s*(\d+), \"(\w+)\"", file.read_text("utf-8")):
            yield f"HTTP {status} {word}"
    for name in errors.__all__:
        found = getattr(errors, name)
        if isinstance(found, type) and issubclass(found, errors.WindlassError):
            made = found.__new__(found)  # without what its text would need
            yield f"{found.__module__}.{found.__qualname__} {made.code}"


def _fields_of(holder: Part) -> Iterator[str]:
    for media, content in holder["content"].items():
        yield media
        yield from _fields(content["schema"], "", ())


def _fields(schema: Part, above: str, within: tuple[str, ...]) -> Iterator[str]:
    """The fields of a schema with their types; one that holds itself is followed once."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in within:
            yield from _fields(_document()["components"]["schemas"][name], above, (*within, name))
        return
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _fields(choice, above, within)
    needed = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        path = f"{above}.{name}" if above else name
        yield f"{path}{' required' if name in needed else ''}"
        yield from _fields(part, path, within)
    for many, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(many), Mapping):
            yield from _fields(schema[many], f"{above}{mark}", within)
    for value in schema.get("enum", ()):
        yield f"{above} = {value}"
