"""Authentication: by a session or token of the dashboard, or by the application around it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windlass._system.seams import new_secret
from windlass._web.security.credentials import Credentials
from windlass._web.security.csrf import is_token_valid
from windlass._web.security.login_throttle import LoginThrottle, TooManyLoginAttempts
from windlass._web.security.roles import Person, Role, parse_role
from windlass._web.security.sessions import Sessions
from windlass.errors import ConfigError

__all__ = [
    "ANONYMOUS",
    "AuthCallback",
    "AuthResult",
    "AuthenticatedPerson",
    "Authentication",
    "BuiltinAuthentication",
    "HostAuthentication",
    "rate_limit_key",
    "set_cookie",
]

ANONYMOUS = "somebody"
"""The name of people that the host lets in by a role alone."""

AuthResult = Person | str | None
AuthCallback = Callable[[Request], AuthResult | Awaitable[AuthResult]]
"""The host's callback that identifies a user: a `Person`, or only the role as a word; None: no
access.
"""


class AuthenticatedPerson(msgspec.Struct, frozen=True, kw_only=True):
    """A user who was let in, for one request."""

    person: Person
    token: str = ""
    """The token that forms must carry."""
    by_cookie: bool = True
    """The browser sent the credential by itself, so another site may have made it do so."""
    new_token: bool = False
    """The browser does not have it yet."""


class Authentication(Protocol):
    """Decides who comes in."""

    @property
    def look_again(self) -> float:
        """Seconds between two checks whether the reader of a stream may still read it."""
        ...

    async def find(self, request: Request) -> AuthenticatedPerson | None:
        """Return the user of a request; None: unknown. The check itself does not
        prolong a session.
        """
        ...

    def used(self, request: Request) -> None:
        """Mark the session as used by a person."""
        ...


class BuiltinAuthentication:
    """Names and passwords of ours, tokens for machines, and a link that works once."""

    look_again: float = 2.0

    def __init__(
        self,
        lines: Iterable[str] = (),
        *,
        sessions: Sessions | None = None,
        attempts: LoginThrottle | None = None,
    ) -> None:
        """Make it. ``lines``: of the settings. Without any, only a link lets people in."""
        self.credentials: Credentials = Credentials(lines)
        self.sessions: Sessions = sessions or Sessions()
        self.attempts: LoginThrottle = attempts or LoginThrottle()
        self._link = ""
        self._on_used: Callable[[], None] | None = None

    async def find(self, request: Request) -> AuthenticatedPerson | None:
        token = _bearer_of(request)
        if token is not None:
            return self._bearer(request, token)
        session = self.sessions.find(request.cookies.get(session_cookie(request), ""))
        return (
            None
            if session is None
            else AuthenticatedPerson(person=session.person, token=session.token)
        )

    def used(self, request: Request) -> None:
        self.sessions.use(request.cookies.get(session_cookie(request), ""))

    def ended(self, request: Request) -> bool:
        """Return whether a request has the cookie of a session that is over."""
        return bool(request.cookies.get(session_cookie(request)))

    def _bearer(self, request: Request, token: str) -> AuthenticatedPerson | None:
        person = self.credentials.bearer(token)
        if person is not None:
            # After any number of wrong ones from there. Tokens cannot be guessed; but behind one
            # proxy all clients have the same address, and an attacker there must not lock out the
            # others.
            return AuthenticatedPerson(person=person, by_cookie=False)
        address = client_address_of(request)
        wait = self.attempts.wait(address)
        if wait > 0:
            raise TooManyLoginAttempts(wait)
        self.attempts.failed(address)
        return None

    # --- coming and going ---

    def let_in(self, request: Request, response: Response, person: Person) -> None:
        """Start a new session: a cookie that was planted before is worthless."""
        self.sessions.close(request.cookies.get(session_cookie(request), ""))
        set_cookie(request, response, session_cookie(request), self.sessions.open(person))

    def let_out(self, request: Request, response: Response) -> None:
        """End the session, and delete its cookie in the browser."""
        name = session_cookie(request)
        self.sessions.close(request.cookies.get(name, ""))
        set_cookie(request, response, name, "")

    # --- the link ---

    def new_link(self, on_used: Callable[[], None] | None = None) -> str:
        """Return a secret that lets in once. ``on_used`` is called when a request comes with an old
        one, so that a new one can be shown where only the owner sees it.
        """
        self._link, self._on_used = new_secret(), on_used
        return self._link

    def use_link(self, secret: str) -> Person | None:
        """Log in by a link. Its owner started this dashboard, and may do everything. It is checked
        after any number of wrong ones: it cannot be guessed, and an attacker who tries must not
        lock out its owner.
        """
        if not is_token_valid(secret, self._link):
            return None
        self._link = ""
        return Person("local", Role.ADMIN)

    def old_link(self) -> None:
        """Handle a link that does not match: show a new one if the last was used."""
        if not self._link and self._on_used is not None:
            self._on_used()


class HostAuthentication:
    """The application around us knows its people."""

    look_again: float = 15.0
    """Each time may be a query of the host's, for each of a hundred streams."""

    def __init__(self, ask: AuthCallback) -> None:
        """``ask``: called for every request."""
        self._ask = ask

    async def find(self, request: Request) -> AuthenticatedPerson | None:
        answer = self._ask(request)
        if inspect.isawaitable(answer):
            answer = await answer
        person = _person(answer)
        if person is None:
            return None
        if _bearer_of(request) is not None:
            # No browser adds this by itself, and no page of another site can make it do so.
            return AuthenticatedPerson(person=person, by_cookie=False)
        # Sent back in forms and compared with itself: it needs no memory that the processes of a
        # server would have to share.
        token = request.cookies.get(form_cookie(request), "")
        return AuthenticatedPerson(person=person, token=token or new_secret(), new_token=not token)

    def used(self, request: Request) -> None:
        """Do nothing: the host was asked, and may have taken note of it."""


def _person(answer: object) -> Person | None:
    if answer is None or isinstance(answer, Person):
        return answer
    if isinstance(answer, str):
        return Person(ANONYMOUS, parse_role(answer))
    message = (
        f"auth= of the dashboard must answer a Person, 'viewer', 'operator', 'admin' or None, "
        f"got {type(answer).__name__}"
    )
    raise ConfigError(message)


def _bearer_of(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def rate_limit_key(request: Request, entry: AuthenticatedPerson) -> str:
    """Return the key under which requests are counted together, for all browsers and tokens of one
    person.
    """
    name = entry.person.name
    return name if name != ANONYMOUS else f"{name} at {client_address_of(request)}"


def client_address_of(request: Request) -> str:
    """Return the client's address. A header counts only if the server was told to trust it."""
    return request.client.host if request.client is not None else "unknown"


# --- cookies --------------------------------------------------------------------------------------


def session_cookie(request: Request) -> str:
    """Named for this mount: cookies do not know ports, and two dashboards may share a host."""
    return _cookie(request, "session")


def form_cookie(request: Request) -> str:
    """Return the same for the token of forms."""
    return _cookie(request, "form")


def notice_cookie(request: Request) -> str:
    """Return the same for the words that the next page shows."""
    return _cookie(request, "notice")


def _cookie(request: Request, what: str) -> str:
    where = f"{request.headers.get('host', '')}{request.scope.get('root_path', '')}"
    mark = hashlib.sha256(where.encode()).hexdigest()[:8]
    prefix = "__Host-" if request.url.scheme == "https" else ""
    return f"{prefix}windlass-{what}-{mark}"


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """Set a cookie for our own pages only, out of reach of scripts. An empty value deletes it."""
    response.set_cookie(
        name,
        value,
        max_age=None if value else 0,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
