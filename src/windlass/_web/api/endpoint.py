"""One address of the API: what it takes, what it answers, who may. Routes and OpenAPI read it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response

from windlass._web.request import PageRequest
from windlass._web.security.roles import Role
from windlass.errors import InvalidArgument

__all__ = ["PREFIX", "Endpoint", "Nothing", "Part"]

PREFIX = "/api/v1"
_JSON = "application/json"


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing is asked beside the address."""


class Part(msgspec.Struct, frozen=True):
    """Some lines of a list, and the cursor of the next part."""

    lines: Sequence[Any]
    after: str | None
    """The cursor of the next part; None: this is the last."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the API's table, and the page that answers it."""

    method: Literal["GET", "POST"]
    path: str
    """Below the prefix."""
    answer: Callable[[PageRequest, Any], Awaitable[Any]]
    asked: type[msgspec.Struct] = Nothing
    """The words of the query of a GET, the body of a POST."""
    told: Any
    """The type of the answer."""
    title: str
    """Its purpose, in one line."""
    role: Role = Role.VIEWER
    code: int = 200
    refusals: tuple[int, ...] = ()
    """404: it may be about something that is not there. 409: about something in another state."""
    heavy: bool = False
    """It counts, searches or sums up: few such are answered at a time."""

    @property
    def address(self) -> str:
        """Below the mount."""
        return f"{PREFIX}{self.path}"

    async def __call__(self, visit: PageRequest) -> Response:
        given = await self._given(visit)
        told = await self.answer(visit, given)
        if not isinstance(told, Part):
            return _respond(told, self.code)
        response = _respond(told.lines, self.code)
        if told.after is not None:
            response.headers["Link"] = f'<{visit.changed(after=told.after)}>; rel="next"'
        return response

    async def _given(self, visit: PageRequest) -> msgspec.Struct:
        if self.method == "GET":
            given = _query(visit.request.query_params, self.asked)
        else:
            given = await _body(visit, self.asked)
        return _checked(given)


# --- what comes in --------------------------------------------------------------------------------


def _query(words: QueryParams, wanted: type[msgspec.Struct]) -> msgspec.Struct:
    """Read the query. An unknown parameter is refused: a filter with a typing error would match
    everything.
    """
    several = {field.encode_name for field in msgspec.structs.fields(wanted) if field.default == ()}
    given: dict[str, Any] = {}
    for name in words:
        values = words.getlist(name)
        if name in several:
            given[name] = values
        elif len(values) > 1:
            message = f"the query has {name} {len(values)} times; give it once"
            raise InvalidArgument(message)
        else:
            given[name] = values[0]
    return _converted(given, wanted, strict=False)


async def _body(visit: PageRequest, wanted: type[msgspec.Struct]) -> msgspec.Struct:
    body = await visit.body()
    if not body:
        return _converted({}, wanted, strict=True)
    kind = visit.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        message = f"the body must be JSON: send it with Content-Type: {_JSON}"
        raise InvalidArgument(message)
    try:
        return msgspec.json.decode(body, type=wanted)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _misfit(error) from None


def _converted(
    given: dict[str, Any], wanted: type[msgspec.Struct], *, strict: bool
) -> msgspec.Struct:
    try:
        return msgspec.convert(given, wanted, strict=strict)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _misfit(error) from None


def _misfit(error: Exception) -> InvalidArgument:
    if isinstance(error, InvalidArgument):
        return error
    why = str(error) or type(error).__name__
    return InvalidArgument(f"the request is not valid: {why}")


def _checked(given: msgspec.Struct) -> msgspec.Struct:
    """Text that every store can look for, instants that every calendar knows."""
    changed: dict[str, Any] = {}
    for name in given.__struct_fields__:
        value = getattr(given, name)
        match value:
            case str():
                _check_text(name, value)
            case tuple():
                for part in value:
                    if isinstance(part, str):
                        _check_text(name, part)
            case datetime():
                changed[name] = _in_utc(name, value)
            case msgspec.Struct():
                changed[name] = _checked(value)
            case _:
                pass
    return msgspec.structs.replace(given, **changed) if changed else given


def _check_text(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        message = f"{name} holds half a character (a lone surrogate)"
        raise InvalidArgument(message) from None
    if "\x00" in value:
        message = f"{name} holds a NUL character"
        raise InvalidArgument(message)


def _in_utc(name: str, value: datetime) -> datetime:
    if value.tzinfo is None:
        message = f"{name} needs an offset: 2030-12-24T08:00:00Z"
        raise InvalidArgument(message)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        message = f"{name} is out of range"
        raise InvalidArgument(message) from None


# --- what goes out --------------------------------------------------------------------------------


def _respond(told: Any, code: int) -> Response:
    try:
        body = msgspec.json.encode(told)
    except UnicodeEncodeError:
        # Half a character that was stored somewhere: written out, it is still valid JSON.
        body = json.dumps(msgspec.to_builtins(told)).encode()
    return Response(body, status_code=code, media_type=JSONResponse.media_type)
