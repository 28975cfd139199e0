"""The dashboard as an ASGI application, under any prefix, with or without a lifespan."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from windlass._admin.explain.cause import with_target, without_commands
from windlass._app.parts import parts_of
from windlass._core.limits.limit import Rate
from windlass._web.live.changes import LiveChanges
from windlass._web.render import error_pages
from windlass._web.render.assets import Assets
from windlass._web.render.error_pages import error_response
from windlass._web.render.templates import Templates
from windlass._web.request import PageRequest
from windlass._web.routes import LOOKS, LOOKS_AT, ROUTES, PageRoute
from windlass._web.security.authentication import (
    AuthCallback,
    Authentication,
    BuiltinAuthentication,
    HostAuthentication,
)
from windlass._web.security.concurrency import SMALL_AT_ONCE, ReadLimiter
from windlass._web.security.guard import RouteGuard
from windlass._web.security.headers import SecurityHeaders
from windlass._web.security.rate_limit import DEFAULT_ACTION_RATE, ActionRateLimit
from windlass.errors import ConfigError

if TYPE_CHECKING:
    from windlass._app.app import Windlass

__all__ = ["Auth", "Dashboard", "make_dashboard"]

log = logging.getLogger("windlass")

Auth = AuthCallback | Sequence[str] | Authentication
"""A callable of the host, or lines of NAME:ROLE:HASH as in the setting ``dashboard_auth``."""


class Dashboard:
    """The objects that the pages of one dashboard share."""

    def __init__(
        self,
        app: Windlass,
        door: Authentication,
        *,
        read_only: bool = False,
        title: str = "Windlass",
        login_url: str | None = None,
        hosts: Iterable[str] | None = None,
        pace: ActionRateLimit | None = None,
        routes: Sequence[PageRoute] = ROUTES,
    ) -> None:
        """``hosts``: names it answers to; None: any, since a server in front decides. ``pace``: how
        fast orders may come.
        """
        self.app = app
        self.door = door
        self.read_only = read_only
        self.login_url = login_url
        self.hosts: frozenset[str] | None = (
            None if hosts is None else frozenset(host.lower() for host in hosts)
        )
        self.pace: ActionRateLimit = pace or ActionRateLimit()
        self.places: ReadLimiter = ReadLimiter()
        self.small_places: ReadLimiter = ReadLimiter(SMALL_AT_ONCE)
        self.check_places: ReadLimiter = ReadLimiter(1)
        self.routes = routes
        self.paths: frozenset[str] = frozenset(route.path for route in routes)
        self.assets: Assets = Assets()
        self.templates: Templates = Templates(self.assets, title)
        self.live: LiveChanges = LiveChanges(app.admin, LOOKS, LOOKS_AT)
        self._told_of_names = hosts is not None

    def placed(self, advice: str) -> str:
        """Advice with commands that can be pasted; without them where no other process can reach
        the storage.
        """
        url = self.app.settings.url
        if url.startswith("memory://"):
            return without_commands(advice)
        return with_target(advice, self._target, url)

    @property
    def loaded_from(self) -> str | None:
        """The name that this process has loaded the app by, for commands on pages."""
        return parts_of(self.app).location.target

    @functools.cached_property
    def _target(self) -> str | None:
        """The app as commands name it, if it is a variable that they can import."""
        try:
            return parts_of(self.app).location.locate().target
        except ConfigError:
            return None

    @property
    def own_people(self) -> bool:
        """Whether people log in and out here, not at the application around us."""
        return isinstance(self.door, BuiltinAuthentication)

    @property
    def has_users(self) -> bool:
        """Whether anybody has a name and a password here."""
        return isinstance(self.door, BuiltinAuthentication) and bool(self.door.credentials)

    def tell_of_names(self, request: Request) -> None:
        """Warn once if the host lets in requests without any credential of a browser: by address,
        or by what a proxy adds. A page of another site whose name leads here (DNS rebinding) is
        then let in, too, unless the names of this dashboard are given.
        """
        if self._told_of_names or not isinstance(self.door, HostAuthentication):
            return
        if "cookie" not in request.headers and "authorization" not in request.headers:
            self._told_of_names = True
            log.warning(
                "auth= of the dashboard accepted a request without a cookie and without an "
                "Authorization header. Name the hosts under which it is served, so that no other "
                "site can reach it through a browser: "
                "app.dashboard(auth=…, hosts=['jobs.example.org'])"
            )

    def asgi(self) -> Starlette:
        """Return the application to mount, or to serve."""
        served = Starlette(
            routes=[
                Route(route.path, RouteGuard(route, self).answer, methods=list(route.methods))
                for route in self.routes
            ],
            middleware=[Middleware(SecurityHeaders)],
            exception_handlers={HTTPException: self._no_route},
        )
        served.router.redirect_slashes = False  # one address for each page
        served.state.windlass_dashboard = self
        return served

    async def _no_route(self, request: Request, error: Exception) -> Response:
        """Answer an unknown address. The answer shows nothing that an anonymous visitor may not
        know.
        """
        wrong_method = isinstance(error, HTTPException) and error.status_code == 405
        failure = error_pages.METHOD_NOT_ALLOWED if wrong_method else error_pages.NOT_FOUND
        visit = PageRequest(request, self, None)
        response = error_response(visit, failure, as_json=visit.path.startswith("/api/"))
        if isinstance(error, HTTPException) and error.headers is not None:
            response.headers.update(error.headers)  # which methods there are
        return response


def make_dashboard(
    app: Windlass,
    auth: Auth | None,
    *,
    read_only: bool = False,
    title: str = "Windlass",
    login_url: str | None = None,
    hosts: Iterable[str] | None = None,
    action_rate: Rate = DEFAULT_ACTION_RATE,
) -> Starlette:
    """Make the application of ``app.dashboard(…)``. Without users there is nothing to serve.

    ``hosts``: the names that it answers to, without ports; None: to every name. Give them if
    ``auth`` lets people in by anything but a cookie or a header that only they know: by their
    address, or by a header that a proxy adds.

    ``action_rate``: actions per second of one person or token; all of them together may act five
    times as fast. Faster requests are answered with a wait.
    """
    made = Dashboard(
        app,
        _door(auth, app.settings.dashboard_auth),
        read_only=read_only,
        title=title,
        login_url=login_url,
        hosts=hosts,
        pace=ActionRateLimit(action_rate),
    )
    return made.asgi()


def _door(auth: Auth | None, settings: Sequence[str]) -> Authentication:
    if isinstance(auth, BuiltinAuthentication | HostAuthentication):
        return auth
    if callable(auth):
        return HostAuthentication(auth)
    if isinstance(auth, str):
        message = "auth= takes a list of lines, or a function that returns the role of a request"
        raise ConfigError(message)
    lines = settings if auth is None else auth
    if not isinstance(lines, Sequence) or not lines:
        message = (
            "a dashboard needs users: give app.dashboard(auth=…) a function that returns 'viewer', "
            "'operator', 'admin' or None for a request, or make a line for the setting "
            "dashboard_auth with `windlass dashboard --new-user NAME`"
        )
        raise ConfigError(message)
    return BuiltinAuthentication(lines)
