"""Headers of every response, also of errors."""

from __future__ import annotations

import logging
import re

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["SECURITY", "SecurityHeaders"]

log = logging.getLogger("windlass")

SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: under that a browser says "null" for where our own forms come from, and what
    # it says is one of the checks. Other sites learn nothing either way.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": (
        "accelerometer=(), camera=(), geolocation=(), gyroscope=(), magnetometer=(), "
        "microphone=(), payment=(), usb=()"
    ),
}


_HERE = re.compile(
    rb"(.*\.)?localhost\.?(:\d+)?|127(\.\d{1,3}){3}(:\d+)?|\[(::1|::ffff:127(\.\d{1,3}){3})\](:\d+)?",
    re.IGNORECASE,
)


class SecurityHeaders:
    """Around everything: no page can forget them."""

    def __init__(self, app: ASGIApp) -> None:
        """``app``: what answers."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY)
                # Stored data must not be found in a cache; files with a hash in their name may.
                headers.setdefault("Cache-Control", "no-store")
                if scope.get("scheme") == "https" and not _is_own_machine(scope):
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception:
            if started:
                raise  # half an answer is out: the server breaks the connection off
            # Not even the error page could be made. The host's own would lack the headers, and may
            # show more than an anonymous visitor should see.
            log.exception("the dashboard could not answer")
            words = "Internal error. The log of this process has details."
            await PlainTextResponse(words, status_code=500)(scope, receive, sending)


def _is_own_machine(scope: Scope) -> bool:
    """Check whether the browser uses a name such as localhost. An HSTS header for that name would
    make it refuse every other server on this machine, on every port, for a year.
    """
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    return any(_HERE.fullmatch(host) for host in hosts)
