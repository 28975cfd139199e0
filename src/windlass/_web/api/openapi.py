"""The OpenAPI document, made of the table that answers: neither can say more than the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from windlass import __version__
from windlass._web.api.endpoint import Endpoint
from windlass._web.api.endpoints import ENDPOINTS
from windlass._web.api.problem import MEDIA_TYPE, Problem
from windlass._web.api.truncation import Names
from windlass._web.request import PageRequest
from windlass._web.security.cost_limits import ANSWER, PREVIEW, ROWS

__all__ = ["document", "openapi"]

_REFERENCE = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 403, 408, 413, 414, 422, 429, 431, 500, 503)
"""Statuses that any address may answer: unknown host, not logged in, missing role, too slow, too
large, too long, not valid, too many actions, too large a head, an internal error, an unreachable
storage or too many readers at once.
"""
_DURATION = r"^-?P(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$"
"""ISO 8601."""
_ABOUT = (
    "Everything the dashboard shows and does, for programs. Authenticate with a bearer token of "
    "the setting `dashboard_auth`. A browser's session works, too: requests that change something "
    "then need the header `X-Windlass-Token` with the token of `/api/v1/me`. Instants are RFC "
    "3339, durations ISO 8601 (`PT90S`). Names of queues, limits and tasks go into the query or "
    "the body. "
    f"A list has at most {ROWS} rows and {ANSWER // 1_000_000} MB. `next` or the header `Link` "
    f"leads to the rest. A list cuts values longer than {PREVIEW // 1024} KiB; the address of one "
    "record returns all of it. Errors are problem+json (RFC 9457). 429 and 503 say in "
    "`Retry-After` when to try again."
)


async def openapi(visit: PageRequest) -> Response:
    """Return the page."""
    return visit.json({**document(), "servers": [{"url": visit.root or "/"}]})


@cache
def document() -> Mapping[str, Any]:
    """Return the document without the place where it is mounted."""
    shapes, components = _schemas()
    components["Problem"]["required"] = ["title", "status", "detail", "code"]
    paths: dict[str, dict[str, Any]] = {}
    for endpoint, (asked, told) in zip(ENDPOINTS, shapes, strict=True):
        line = _operation(endpoint, components[_name(asked)], told)
        paths.setdefault(endpoint.address, {})[endpoint.method.lower()] = line
    return {
        "openapi": "3.1.0",
        "info": {"title": "Windlass", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": _with_used(components, paths),
            "responses": {str(code): _refusal(code) for code in sorted({*_ALWAYS, 404, 409})},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _schemas() -> tuple[Sequence[tuple[Any, Any]], dict[str, Any]]:
    """Return the schemas of each endpoint's request and answer, and every type they refer to."""
    types = [kind for endpoint in ENDPOINTS for kind in (endpoint.asked, endpoint.told)]
    found, components = msgspec.json.schema_components((*types, Problem), ref_template=_REFERENCE)
    pairs = [_spelled(pair) for pair in zip(found[0:-1:2], found[1:-1:2], strict=True)]
    return pairs, _spelled(components)


def _spelled(part: Any) -> Any:
    """Return the same, durations by a pattern: what JSON Schema calls one has no fractions of a
    second.
    """
    match part:
        case {"format": "duration"}:
            rest = {name: value for name, value in part.items() if name != "format"}
            return {**rest, "pattern": _DURATION}
        case dict():
            return {name: _spelled(value) for name, value in part.items()}
        case list() | tuple():
            return [_spelled(value) for value in part]
        case _:
            return part


def _with_used(components: Mapping[str, Any], paths: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return those that something refers to, directly or not."""
    used = {"Problem"}
    ahead = [paths, components["Problem"]]
    while ahead:
        for name in _references(ahead.pop()):
            if name not in used:
                used.add(name)
                ahead.append(components[name])
    return {name: components[name] for name in sorted(used)}


def _references(part: Any) -> set[str]:
    match part:
        case Mapping():
            own = {_name(part)} if "$ref" in part and "/schemas/" in part["$ref"] else set()
            return own.union(*(_references(value) for value in part.values()))
        case list() | tuple():
            return set().union(*(_references(value) for value in part))
        case _:
            return set()


def _name(reference: Mapping[str, str]) -> str:
    return reference["$ref"].rpartition("/")[2]


def _operation(endpoint: Endpoint, asked: Mapping[str, Any], told: Any) -> Mapping[str, Any]:
    answer: dict[str, Any] = {
        "description": HTTPStatus(endpoint.code).phrase,
        "content": {"application/json": {"schema": told}},
    }
    if issubclass(endpoint.asked, Names):
        answer["headers"] = {"Link": _NEXT}
    codes = sorted({*_ALWAYS, *endpoint.refusals})
    line: dict[str, Any] = {
        "operationId": endpoint.answer.__name__,
        "summary": endpoint.title,
        "description": f"Needs the role {endpoint.role}.",
        "tags": [endpoint.path.split("/")[1]],
        "responses": {
            str(endpoint.code): answer,
            **{str(code): {"$ref": f"#/components/responses/{code}"} for code in codes},
        },
    }
    parameters: list[Mapping[str, Any]] = [
        one for one in (_JOB, _FLOW) if f"{{{one['name']}}}" in endpoint.path
    ]
    if endpoint.method == "GET":
        parameters += _parameters(asked)
    elif asked.get("properties"):
        body = {"$ref": _REFERENCE.format(name=endpoint.asked.__name__)}
        line["requestBody"] = {
            "required": bool(asked.get("required")),
            "content": {"application/json": {"schema": body}},
        }
    if parameters:
        line["parameters"] = parameters
    return line


_NEXT = {
    "description": 'The next page (rel="next"), if there is one.',
    "schema": {"type": "string"},
}
_JOB = {
    "name": "job",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "Id of the job, whole or shortened. Short forms: its first eight and last six "
    "digits, with or without dots (`0192f3a1…9c4e07`), or its last eight or more, which are "
    "looked for among the newest 100,000 jobs. 409 lists the `candidates` if several jobs match.",
}

_FLOW = {
    "name": "flow",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "Whole id of the flow.",
}


def _parameters(asked: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the words of a query, from the record they are read into."""
    needed = asked.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in needed,
            "schema": _without_null(schema),
            **({"description": schema["description"]} if "description" in schema else {}),
        }
        for name, schema in asked.get("properties", {}).items()
    ]


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema without null: a query leaves the parameter out."""
    kept = {name: value for name, value in schema.items() if name != "description"}
    if kept.get("default", 0) is None:
        del kept["default"]
    options = [one for one in kept.pop("anyOf", []) if one.get("type") != "null"]
    if len(options) == 1:
        return {**kept, **options[0]}
    return {**kept, "anyOf": options} if options else kept


def _refusal(code: int) -> Mapping[str, Any]:
    schema = {"$ref": _REFERENCE.format(name="Problem")}
    return {
        "description": HTTPStatus(code).phrase,
        "content": {MEDIA_TYPE: {"schema": schema}},
    }
