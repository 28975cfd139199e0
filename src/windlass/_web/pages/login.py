"""Coming in and going out."""

from __future__ import annotations

import math
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from windlass._web.render import error_pages
from windlass._web.render.error_pages import error_response
from windlass._web.render.templates import NAVIGATION
from windlass._web.request import PageRequest
from windlass._web.security.authentication import BuiltinAuthentication, client_address_of
from windlass._web.security.csrf import is_cross_site
from windlass.errors import InvalidArgument

__all__ = ["home", "login", "login_by_link", "logout"]


async def home(visit: PageRequest) -> Response:
    """Return the first page there is."""
    first = next(entry for entry in NAVIGATION if entry.path in visit.dashboard.paths)
    return visit.go(first.path)


async def login(visit: PageRequest) -> Response:
    """Log in by a name and a password, or a token in its place."""
    door = _own_door(visit)
    if door is None:
        return error_response(visit, error_pages.NOT_FOUND, as_json=False)
    address = client_address_of(visit.request)
    wait = door.attempts.wait_at(address)
    if wait > 0:
        return _too_many(visit, wait)  # without reading what it sends
    form = await visit.form()
    name, wanted = form.get("name", ""), form.get("wanted", "")
    wait = door.attempts.wait(address, name)
    if wait > 0:
        return _too_many(visit, wait, name=name, wanted=wanted)
    door.attempts.failed(address, name)  # until it is known to be right
    person = await door.credentials.check(name, form.get("password", ""))
    if person is None:
        wrong = "Wrong name or password."
        return visit.render_plain(
            "login.html", code=401, wanted=wanted, wrong=wrong, name=name, wait=0
        )
    door.attempts.succeeded(address, name)
    response = RedirectResponse(_inside(visit, wanted), status_code=303)
    door.let_in(visit.request, response, person)
    return response


def _too_many(visit: PageRequest, wait: float, *, name: str = "", wanted: str = "") -> Response:
    seconds = math.ceil(wait)
    response = visit.render_plain(
        "login.html", code=429, wanted=wanted, wrong="", name=name, wait=seconds
    )
    response.headers["Retry-After"] = str(seconds)
    return response


async def login_by_link(visit: PageRequest) -> Response:
    """Log in by the link that was printed. It works once, and does not stay in the address."""
    door = _own_door(visit)
    if door is None:
        return error_response(visit, error_pages.NOT_FOUND, as_json=False)
    if visit.entry is not None:
        return visit.go("/")  # opened again by a user who is logged in already
    if is_cross_site(visit.request):
        # Another site may make a browser try links until the owner is locked out.
        return error_response(visit, error_pages.CROSS_SITE, as_json=False)
    if visit.request.method == "HEAD":
        return Response()  # a request that only checks the address does not use the link up
    person = door.use_link(visit.asked("link"))
    if person is None:
        address = client_address_of(visit.request)
        if door.attempts.wait(address) > 0:
            return visit.render_plain("used.html", code=429)
        door.attempts.failed(address)
        door.old_link()
        return visit.render_plain("used.html", code=401)
    response = visit.go("/")
    door.let_in(visit.request, response, person)
    return response


async def logout(visit: PageRequest) -> Response:
    """Log out. Nothing opens with the old cookie afterwards."""
    door = _own_door(visit)
    if door is None:
        message = "the application that serves this dashboard logged you in; log out there"
        raise InvalidArgument(message)
    response = visit.go("/")
    door.let_out(visit.request, response)
    return response


def _own_door(visit: PageRequest) -> BuiltinAuthentication | None:
    door = visit.dashboard.door
    return door if isinstance(door, BuiltinAuthentication) else None


def _inside(visit: PageRequest, wanted: str) -> str:
    """Return an address of this dashboard for any form value: redirects never lead to
    another site.
    """
    try:
        parts = urlsplit(wanted)
    except ValueError:
        return visit.url("/")
    ours = wanted.startswith(f"{visit.root}/") and not wanted.startswith("//")
    plain = wanted.isprintable() and "\\" not in wanted and not parts.scheme and not parts.netloc
    return wanted if ours and plain else visit.url("/")
