"""One request by one person: all that a page needs, and the only way it answers."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from windlass._web.security.authentication import AuthenticatedPerson, notice_cookie, set_cookie
from windlass._web.security.roles import Person, Role
from windlass.errors import InvalidArgument

if TYPE_CHECKING:
    from windlass._web.app import Dashboard
    from windlass.admin import Admin

__all__ = ["MAX_BODY_BYTES", "PageRequest", "RequestTooLarge", "RequestTooSlow"]

MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_FORM_FIELDS = 1000
BODY_TIMEOUT = 30.0
"""Seconds for a body. A client that sends a form byte by byte does not hold a
connection for ever.
"""
_NOTICE = 400


class RequestTooLarge(InvalidArgument):
    """A request that is too large to be read to its end."""


class RequestTooSlow(InvalidArgument):
    """A request that takes too long to arrive."""


class PageRequest:
    """The arguments of a page."""

    def __init__(
        self,
        request: Request,
        dashboard: Dashboard,
        entry: AuthenticatedPerson | None,
        most_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """``entry``: None where the page is for anybody; ``most_bytes``: of what was sent."""
        self.request = request
        self._most_bytes = most_bytes
        self.dashboard = dashboard
        self.entry = entry
        self._form: Mapping[str, list[str]] | None = None

    # --- who asks whom ---

    @property
    def admin(self) -> Admin:
        """Everything a page may know."""
        return self.dashboard.app.admin

    @property
    def orders(self) -> Admin:
        """The admin for actions, which are recorded under the name of the user."""
        return (
            self.admin
            if self.person is None
            else self.admin.acting(f"dashboard:{self.person.name}")
        )

    @property
    def person(self) -> Person | None:
        """The user; None on pages that need no login."""
        return None if self.entry is None else self.entry.person

    def may(self, role: str) -> bool:
        """Return whether to show what only this role may do. The route table decides in
        any case.
        """
        return self.person is not None and self.person.role.includes(Role(role))

    # --- what was asked ---

    @property
    def method(self) -> str:
        """HEAD asks the same as GET."""
        return "GET" if self.request.method == "HEAD" else self.request.method

    @property
    def partial(self) -> bool:
        """Whether a part of the page is wanted, not its frame."""
        return self.request.headers.get("hx-request") == "true"

    def asked(self, name: str, default: str = "") -> str:
        """Return a query value; the last of several."""
        return self.request.query_params.get(name, default)

    def needed(self, name: str) -> str:
        """Return the same; InvalidArgument if it says nothing."""
        value = self.asked(name)
        if not value:
            message = f"the address of this page needs {name}=…; go back and try again"
            raise InvalidArgument(message)
        return value

    async def form(self) -> Mapping[str, str]:
        """Return the fields of the form that was sent, the last of several."""
        return {name: values[-1] for name, values in (await self.fields()).items()}

    async def fields(self) -> Mapping[str, list[str]]:
        """Return every value of every field, for boxes that are ticked."""
        if self._form is None:
            body = await self.body()
            found: dict[str, list[str]] = {}
            try:
                pairs = parse_qsl(
                    body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS
                )
            except ValueError as error:
                message = f"this form cannot be read: {error}"
                raise InvalidArgument(message) from None
            for name, value in pairs:
                found.setdefault(name, []).append(value)
            self._form = found
        return self._form

    async def body(self) -> bytes:
        """Return the body, up to a size and within a time."""
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                return await self._received()
        except TimeoutError:
            message = f"the request did not arrive within {BODY_TIMEOUT:g} seconds; send it again"
            raise RequestTooSlow(message) from None

    async def _received(self) -> bytes:
        said = self.request.headers.get("content-length", "")
        if said.isdecimal() and int(said[:20]) > self._most_bytes:
            raise self._too_large()  # without waiting for any of it
        parts: list[bytes] = []
        size = 0
        async for part in self.request.stream():
            size += len(part)
            if size > self._most_bytes:
                raise self._too_large()
            parts.append(part)
        return b"".join(parts)

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"a request may have at most {self._most_bytes:,} bytes")

    # --- addresses ---

    @property
    def root(self) -> str:
        """Where the dashboard is mounted: "" or "/jobs"."""
        root: str = self.request.scope.get("root_path", "")
        return root.rstrip("/")

    @property
    def path(self) -> str:
        """Of this page, without the mount."""
        path: str = self.request.scope["path"]
        inside = self.root and path.startswith(f"{self.root}/")
        return path[len(self.root) :] if inside else path

    @property
    def here(self) -> str:
        """The address of this page as it was asked."""
        query = self.request.scope["query_string"].decode("latin-1")
        return f"{self.root}{quote(self.path)}" + (f"?{query}" if query else "")

    def url(self, path: str, **query: object) -> str:
        """Return the address of a page of ours; what is None or "" is left out of the query."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        text = urlencode(given, doseq=True, errors="replace")
        return f"{self.root}{path}" + (f"?{text}" if text else "")

    def changed(self, **query: object) -> str:
        """Return the address of this page with other words in its query."""
        kept: dict[str, object] = {
            name: self.request.query_params.getlist(name) for name in self.request.query_params
        }
        return self.url(self.path, **{**kept, **query})

    # --- answers ---

    async def render(self, template: str, *, code: int = 200, **context: Any) -> Response:
        """Render a page for a user. ``now`` is the store's clock unless the page gives another."""
        now: datetime = context.pop("now", None) or await self.admin.storage.now()
        notice = self._notice()
        response = self.dashboard.templates.respond(
            template, self, code=code, now=now, notice=notice, **context
        )
        if notice is not None and not self.partial:
            set_cookie(self.request, response, notice_cookie(self.request), "")
        return response

    def render_plain(self, template: str, *, code: int, **context: Any) -> Response:
        """Return a page that asks the storage nothing: log-in, errors."""
        return self.dashboard.templates.respond(template, self, code=code, **context)

    def json(self, value: Any, *, code: int = 200) -> Response:
        """Return JSON for machines and charts."""
        body = msgspec.json.encode(value)
        return Response(body, status_code=code, media_type=JSONResponse.media_type)

    def go(self, path: str, *, notice: str = "", bad: bool = False, **query: object) -> Response:
        """To another page of ours, which shows ``notice`` once."""
        response = RedirectResponse(self.url(path, **query), status_code=303)
        if notice:
            kind = "bad" if bad else "good"
            words = base64.urlsafe_b64encode(f"{kind}:{notice[:_NOTICE]}".encode(errors="replace"))
            set_cookie(self.request, response, notice_cookie(self.request), words.decode())
        return response

    def _notice(self) -> tuple[str, str] | None:
        """Return the message that the page before left, and whether it was good."""
        cookie = self.request.cookies.get(notice_cookie(self.request))
        if not cookie:
            return None
        try:
            kind, _, words = base64.urlsafe_b64decode(cookie).decode().partition(":")
        except (binascii.Error, ValueError):
            return None  # not ours
        return ("bad" if kind == "bad" else "good"), words[:_NOTICE]
