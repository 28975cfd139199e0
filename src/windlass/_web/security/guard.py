"""The checks that every request passes before a page sees it."""

from __future__ import annotations

import asyncio
import math
import re
from contextlib import nullcontext
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windlass._web.render import error_pages
from windlass._web.render.error_pages import PageError, PageTimeout, error_response, page_error_of
from windlass._web.request import PageRequest
from windlass._web.security.authentication import (
    AuthenticatedPerson,
    BuiltinAuthentication,
    form_cookie,
    rate_limit_key,
    set_cookie,
)
from windlass._web.security.concurrency import ReadLimiter
from windlass._web.security.cost_limits import CHECK_TIMEOUT, READ_TIMEOUT
from windlass._web.security.csrf import (
    is_cross_site,
    is_link_from_other_site,
    is_token_valid,
    is_user_action,
)
from windlass._web.security.roles import Role

if TYPE_CHECKING:
    from windlass._web.app import Dashboard
    from windlass._web.routes import PageRoute

__all__ = ["RouteGuard"]

_SAFE = {"GET", "HEAD"}
_LONGEST_URL = 4096
_LARGEST_HEAD = 16 * 1024
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
"""Anything else would move the borders of the address that is put together with it."""


class RouteGuard:
    """One route's own: who may pass, and what becomes of errors behind it."""

    def __init__(self, route: PageRoute, dashboard: Dashboard) -> None:
        """``route``: its line in the table."""
        self._route = route
        self._dashboard = dashboard

    async def answer(self, request: Request) -> Response:
        """Return the page, or the reason for a refusal."""
        visit = PageRequest(request, self._dashboard, None)
        try:
            failure = _unfit(request, self._dashboard.hosts)
            if failure is not None:
                return self._refuse(visit, failure)
            entry = await self._dashboard.door.find(request)
            if entry is not None:
                self._dashboard.tell_of_names(request)
            if entry is not None and self._dashboard.read_only:
                person = msgspec.structs.replace(entry.person, role=Role.VIEWER)
                entry = msgspec.structs.replace(entry, person=person)
            visit = PageRequest(request, self._dashboard, entry, self._route.most_bytes)
            response = await self._pass(visit, entry)
        except Exception as error:  # noqa: BLE001 -- any error becomes a page
            response = self._refuse(visit, page_error_of(error))
        if response.status_code < 500 and is_user_action(
            request, page=self._route.answers == "page"
        ):
            # Not requests that a page makes by itself, nor a page that reloads until the storage is
            # back: an unattended screen must be locked some day.
            self._dashboard.door.used(request)
        return response

    async def _pass(self, visit: PageRequest, entry: AuthenticatedPerson | None) -> Response:
        request, needed = visit.request, self._route.role
        safe = request.method in _SAFE
        if is_cross_site(request) and (not safe or self._route.answers != "page"):
            return self._refuse(visit, error_pages.CROSS_SITE)
        if needed is not None:
            if entry is None:
                return self._ask_to_log_in(visit)
            if not entry.person.role.includes(needed):
                return self._refuse(visit, self._too_little(needed))
            if not safe and entry.by_cookie and not await self._has_token(visit, entry):
                as_json = self._route.answers == "json"
                return self._refuse(
                    visit, error_pages.MISSING_TOKEN if as_json else error_pages.STALE_FORM
                )
            if not safe and self._route.paced:
                wait = self._dashboard.pace.wait(rate_limit_key(request, entry))
                if wait > 0:
                    return self._refuse(visit, error_pages.too_many_actions(math.ceil(wait)))
        response = await self._made(visit, "" if entry is None else rate_limit_key(request, entry))
        if entry is not None and entry.new_token:
            set_cookie(request, response, form_cookie(request), entry.token)
        return response

    async def _made(self, visit: PageRequest, who: str) -> Response:
        """Make the page, in its turn and within its time."""
        heavy = visit.method in self._route.heavy
        reads = visit.method == "GET" and self._route.answers != "stream"
        within = READ_TIMEOUT if reads else CHECK_TIMEOUT if heavy else None
        # Checks take their time, most of it waiting: they are not to take the places of pages.
        places: ReadLimiter | None = None
        if heavy:
            places = self._dashboard.places if reads else self._dashboard.check_places
        elif reads and self._route.role is not None:
            places = self._dashboard.small_places
        async with nullcontext() if places is None else places.one(who):
            time = asyncio.timeout(within)
            try:
                async with time:
                    return await self._route.page(visit)
            except TimeoutError:
                if time.expired():  # ours, and not one that the storage told of
                    raise PageTimeout from None
                raise

    async def _has_token(self, visit: PageRequest, entry: AuthenticatedPerson) -> bool:
        given = visit.request.headers.get("x-windlass-token")
        if given is None and self._route.answers != "json":  # else the body is no form
            given = (await visit.form()).get("token", "")
        return is_token_valid(given or "", entry.token)

    def _ask_to_log_in(self, visit: PageRequest) -> Response:
        """Ask an anonymous visitor to log in, at the address they wanted, if logging in is
        possible.
        """
        if self._route.answers != "page" or visit.partial:
            return error_response(visit, error_pages.UNAUTHENTICATED, as_json=True)
        if is_link_from_other_site(visit.request):
            # The browser kept our cookies back. Asked again by a page of ours, it sends them.
            return visit.render_plain("again.html", code=401)
        if isinstance(self._dashboard.door, BuiltinAuthentication):
            wanted = visit.here if visit.method == "GET" else ""
            return visit.render_plain(
                "login.html", code=401, wanted=wanted, wrong="", name="", wait=0
            )
        return visit.render_plain("stranger.html", code=401, login_url=self._dashboard.login_url)

    def _too_little(self, needed: Role) -> PageError:
        if self._dashboard.read_only:
            sentence = "This dashboard is read-only."
            return PageError(403, "read_only", "Read-only", sentence)
        sentence = f"This needs the role {needed}. Ask the administrator of this dashboard for it."
        return PageError(403, "role", "Not allowed for your role", sentence)

    def _refuse(self, visit: PageRequest, failure: PageError) -> Response:
        # A request for a part of a page gets no whole page in its place.
        as_json = self._route.answers == "json" or (
            visit.partial and failure in (error_pages.BUSY, error_pages.TOO_MANY_READS)
        )
        return error_response(visit, failure, as_json=as_json)


def _unfit(request: Request, hosts: frozenset[str] | None) -> PageError | None:
    """Return why this is not a browser's request to this dashboard."""
    if len(request.scope["path"]) + len(request.scope["query_string"]) > _LONGEST_URL:
        return error_pages.URL_TOO_LONG
    # A server bounds what it waits for; what comes in one piece it may take, however large.
    if sum(len(name) + len(value) + 4 for name, value in request.scope["headers"]) > _LARGEST_HEAD:
        return error_pages.HEADERS_TOO_LARGE
    if "content-length" in request.headers and "transfer-encoding" in request.headers:
        return error_pages.CONFLICTING_LENGTHS  # a proxy in front may believe the other
    host = request.headers.get("host", "")
    if host and _HOST.fullmatch(host) is None:
        return error_pages.WRONG_HOST
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if hosts is not None and name.lower() not in hosts:
        return error_pages.WRONG_HOST
    return None
