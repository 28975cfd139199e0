"""Whether a request comes from our own pages, by headers that no page can forge."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.requests import Request

__all__ = ["is_cross_site", "is_link_from_other_site", "is_token_valid", "is_user_action"]

_OWN = {"same-origin", "none"}
"""``none``: typed, bookmarked, or reloaded by the person."""


def is_cross_site(request: Request) -> bool:
    """Check whether another site made the browser send this. Names are compared, not schemes: a
    proxy in front of us may end TLS.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in _OWN:
        return True
    origin = request.headers.get("origin")
    if origin is None or (origin == "null" and site is not None):
        return False  # where it hides its name, its word on the site is enough
    try:
        return origin == "null" or urlsplit(origin).netloc != request.headers.get("host")
    except ValueError:
        return True  # no browser says it so


def is_link_from_other_site(request: Request) -> bool:
    """Return whether this is a page opened by a link on another site, for which the browser leaves
    out cookies that are for our own pages only.
    """
    return (
        request.method == "GET"
        and request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        and request.headers.get("sec-fetch-mode") == "navigate"
    )


def is_user_action(request: Request, *, page: bool) -> bool:
    """Return whether a person did this: sent a form or opened a page. Parts that fetch themselves
    anew, streams and files are the page's own doing. ``page``: whether this is the address of one.
    """
    if request.method not in {"GET", "HEAD"}:
        return True
    mode = request.headers.get("sec-fetch-mode")
    if mode is not None:
        return mode == "navigate"
    return page and request.method == "GET" and request.headers.get("hx-request") != "true"


def is_token_valid(given: str, expected: str) -> bool:
    """Compare tokens in constant time."""
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())
