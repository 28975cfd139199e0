"""``windlass dashboard``: serve the dashboard."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from windlass._app.parts import parts_of
from windlass._cli.addresses import is_loopback
from windlass._cli.options.groups import examples
from windlass._cli.options.target import Target, open_target, target_argument, target_of, url_option

if TYPE_CHECKING:
    from windlass._web.app import Dashboard

__all__ = ["allowed_hosts_of", "bind_socket", "browser_url_of", "dashboard", "require_web"]

_PORT = 8383


@click.command(
    epilog=examples(
        "windlass dashboard shop:app",
        "windlass dashboard --new-user ada --role operator      # asks for a password",
        "WINDLASS_DASHBOARD_AUTH='ada:operator:scrypt…' windlass dashboard shop:app --host 0.0.0.0",
    )
)
@target_argument
@url_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="Port to listen on. 0 picks a free one.",
)
@click.option(
    "--auth",
    "lines",
    metavar="NAME:ROLE:HASH",
    multiple=True,
    help="A user or token, instead of the setting dashboard_auth. Repeat for more.",
)
@click.option("--read-only", is_flag=True, help="Make every user a viewer.")
@click.option("--title", default="Windlass", show_default=True, help="Title of the pages.")
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="Path at which a proxy serves it. The proxy must remove this path from its requests.",
)
@click.option(
    "--proxy",
    "proxies",
    metavar="ADDRESS",
    multiple=True,
    help="Trust the client address and scheme (https) that this proxy forwards. Repeat for more.",
)
@click.option(
    "--new-user", metavar="NAME", help="Ask for a password, print the user's --auth line and exit."
)
@click.option("--new-token", metavar="NAME", help="Print a new token and its --auth line and exit.")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    default="viewer",
    show_default=True,
    help="Role of the new user or token.",
)
def dashboard(
    target: str | None,
    url: str | None,
    *,
    new_user: str | None,
    new_token: str | None,
    role: str,
    **options: object,
) -> int:
    """Serve the dashboard: jobs, queues, workers, limits and schedules in a browser.

    On 127.0.0.1 it prints a sign-in link that works once. To serve other machines, create users
    with --new-user or --new-token, and pass their lines in --auth or WINDLASS_DASHBOARD_AUTH.

    A viewer reads, an operator acts on jobs, queues and workers, an admin also changes settings.
    """
    require_web()
    if new_user is not None or new_token is not None:
        return _introduce(new_user, new_token, role)
    return _DashboardRun(target_of(target, url), msgspec.convert(options, _DashboardOptions)).run()


def require_web() -> None:
    """Raise MissingDependency, which says what to install."""
    from windlass.errors import MissingDependency

    try:
        import uvicorn
    except ImportError as error:
        raise MissingDependency("The dashboard", "windlass[web]") from error
    del uvicorn
    import windlass.web  # it says the same of what it needs  # noqa: F401


def _introduce(user: str | None, token: str | None, role: str) -> int:
    """Print the line for the settings. It has no secret; a new token is printed once."""
    from windlass._system.seams import new_secret
    from windlass._web.security.credentials import password_line, token_line
    from windlass._web.security.roles import Role

    if user is not None and token is not None:
        raise click.UsageError("give --new-user or --new-token, not both")
    if user is not None:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        if len(password) < 10:
            raise click.UsageError("a password needs at least 10 characters")
        click.echo(password_line(user, Role(role), password))
    elif token is not None:
        secret = new_secret()
        click.echo(f"Token (shown only once): {secret}", err=True)
        click.echo(token_line(token, Role(role), secret))
    click.echo("Add this line to the setting dashboard_auth (WINDLASS_DASHBOARD_AUTH).", err=True)
    return 0


class _DashboardOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one run."""

    host: str
    port: int
    lines: tuple[str, ...]
    read_only: bool
    title: str
    root_path: str
    proxies: tuple[str, ...]


class _DashboardRun:
    """One run, from the options to Ctrl-C."""

    def __init__(self, where: Target, plan: _DashboardOptions) -> None:
        self._where = where
        self._plan = plan
        path = plan.root_path.strip("/")
        self._root = f"/{path}" if path else ""
        self._address = ""

    def run(self) -> int:
        """Serve until stopped."""
        asyncio.run(self._serve())
        return 0

    async def _serve(self) -> None:
        from windlass._cli.dashboard.server import DashboardServer
        from windlass._web.app import Dashboard
        from windlass._web.security.authentication import BuiltinAuthentication

        async with open_target(self._where) as app:
            lines = self._plan.lines or app.settings.dashboard_auth
            local = is_loopback(self._plan.host)
            if not lines and not local:
                raise click.ClickException(self._refusal())
            door = BuiltinAuthentication(lines)
            made = Dashboard(
                app,
                door,
                read_only=self._plan.read_only,
                title=self._plan.title,
                hosts=allowed_hosts_of(self._plan.host, self._plan.proxies) if local else None,
            )
            with bind_socket(self._plan.host, self._plan.port) as listening:
                self._address = browser_url_of(listening, self._plan.host) + self._root
                described = (await parts_of(app).storage()).describe()
                click.echo(
                    f"Dashboard of {described}{' (read-only)' if self._plan.read_only else ''}"
                )
                self._greet(made, door_needs_link=not lines)
                server = DashboardServer(made, root_path=self._root, proxies=self._plan.proxies)
                await server.serve(sockets=[listening])

    def _greet(self, made: Dashboard, *, door_needs_link: bool) -> None:
        if door_needs_link:
            self._print_link(made)
        else:
            click.echo(f"\n  {self._address}/\n")
        click.echo("Press Ctrl-C to stop.")

    def _print_link(self, made: Dashboard) -> None:
        from windlass._web.security.authentication import BuiltinAuthentication

        if isinstance(made.door, BuiltinAuthentication):
            link = made.door.new_link(lambda: self._print_link(made))
            click.echo(f"\n  {self._address}/enter?link={link}\n")
            click.echo("The link signs in one browser, once.")
            sys.stdout.flush()

    def _refusal(self) -> str:
        return (
            f"other machines can reach {self._plan.host}, and there are no users. Create them with "
            f"`windlass dashboard --new-user NAME --role operator` and pass their lines in --auth "
            f"or WINDLASS_DASHBOARD_AUTH; or listen on 127.0.0.1"
        )


def allowed_hosts_of(host: str, proxies: Sequence[str]) -> Sequence[str] | None:
    """Return the host names that a local dashboard accepts, against DNS rebinding.

    None accepts every name: a proxy in front of it checks names itself.
    """
    name = f"[{host}]" if ":" in host else host
    return None if proxies else ("localhost", "127.0.0.1", "[::1]", name)


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind the socket before the address is printed, so that the address is true."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()  # a browser that opens the printed link at once is not refused
        except OSError:
            listening.close()
            raise
    except OSError as error:
        message = (
            f"cannot listen on {host}:{port}: {error.strerror or error}. Try another --port, or 0 "
            f"for a free one"
        )
        raise click.ClickException(message) from error
    return listening


def browser_url_of(listening: socket.socket, host: str) -> str:
    """Return the URL for a browser."""
    port = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
