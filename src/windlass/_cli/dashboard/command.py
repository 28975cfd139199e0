"""``windlass dashboard``: the pages, served by a process of their own."""

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
from windlass._cli.options.target import Target, open_target, target_argument, target_of, url_option

if TYPE_CHECKING:
    from windlass._web.app import Dashboard

__all__ = ["allowed_hosts_of", "bind_socket", "browser_url_of", "dashboard", "require_web"]

_PORT = 8383


@click.command()
@target_argument
@url_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="Port to listen on; 0: any that is free.",
)
@click.option(
    "--auth",
    "lines",
    metavar="NAME:ROLE:HASH",
    multiple=True,
    help="Who may come in, instead of the setting dashboard_auth. May be given several times.",
)
@click.option("--read-only", is_flag=True, help="Look, and change nothing, whoever asks.")
@click.option("--title", default="Windlass", show_default=True, help="What it is called.")
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="Where a proxy has mounted it, which takes this off the addresses that it passes on.",
)
@click.option(
    "--proxy",
    "proxies",
    metavar="ADDRESS",
    multiple=True,
    help="A proxy whose word on who asks, and whether by https, is believed.",
)
@click.option("--new-user", metavar="NAME", help="Make a line for somebody with a password; end.")
@click.option("--new-token", metavar="NAME", help="Make a token and a line for it; end.")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    default="viewer",
    show_default=True,
    help="Of whom --new-user or --new-token is for.",
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
    """See every queue, job and worker in a browser, and act.

    It is closed to strangers. On this machine alone (127.0.0.1) it prints a link that lets one
    browser in, once. To serve others, say who may come in:

    \b
      windlass dashboard --new-user ada --role operator     asks for a password
      WINDLASS_DASHBOARD_AUTH='ada:operator:scrypt…' \\
        windlass dashboard shop:app --host 0.0.0.0

    A viewer looks, an operator acts, an admin changes settings, too.
    """  # noqa: D301 -- click's mark for lines that stay as they are
    require_web()
    if new_user is not None or new_token is not None:
        return _introduce(new_user, new_token, role)
    return _DashboardRun(target_of(target, url), msgspec.convert(options, _DashboardOptions)).run()


def require_web() -> None:
    """MissingDependency says what to install."""
    from windlass.errors import MissingDependency

    try:
        import uvicorn
    except ImportError as error:
        raise MissingDependency("The dashboard", "windlass[web]") from error
    del uvicorn
    import windlass.web  # it says the same of what it needs  # noqa: F401


def _introduce(user: str | None, token: str | None, role: str) -> int:
    """Print what goes into the settings: never what lets somebody in, except a new token, once."""
    from windlass._system.seams import new_secret
    from windlass._web.security.credentials import password_line, token_line
    from windlass._web.security.roles import Role

    if user is not None and token is not None:
        raise click.UsageError("--new-user or --new-token, one at a time")
    if user is not None:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        if len(password) < 10:
            raise click.UsageError("a password needs at least 10 characters: others may guess")
        click.echo(password_line(user, Role(role), password))
    elif token is not None:
        secret = new_secret()
        click.echo(f"The token, shown this once: {secret}", err=True)
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
        """Until it is told to stop."""
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
        click.echo("Ctrl-C ends it.")

    def _print_link(self, made: Dashboard) -> None:
        from windlass._web.security.authentication import BuiltinAuthentication

        if isinstance(made.door, BuiltinAuthentication):
            link = made.door.new_link(lambda: self._print_link(made))
            click.echo(f"\n  {self._address}/enter?link={link}\n")
            click.echo("The link lets one browser in, once.")
            sys.stdout.flush()

    def _refusal(self) -> str:
        return (
            f"others can reach {self._plan.host}, and nobody has said who may come in. Make a "
            f"line for each of them with `windlass dashboard --new-user NAME --role operator` and "
            f"give it by --auth or WINDLASS_DASHBOARD_AUTH; or listen on 127.0.0.1"
        )


def allowed_hosts_of(host: str, proxies: Sequence[str]) -> Sequence[str] | None:
    """What a dashboard on this machine answers to: another name that leads here is somebody else's
    page. None: anything, since a proxy in front of it has names of its own, and knows them.
    """
    name = f"[{host}]" if ":" in host else host
    return None if proxies else ("localhost", "127.0.0.1", "[::1]", name)


def bind_socket(host: str, port: int) -> socket.socket:
    """Bound before anything is printed, so that what is printed is true."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()  # whoever is quick with the printed link waits, and is not refused
        except OSError:
            listening.close()
            raise
    except OSError as error:
        message = (
            f"cannot listen on {host}:{port}: {error.strerror or error}. Another --port, or 0 for "
            f"any that is free?"
        )
        raise click.ClickException(message) from error
    return listening


def browser_url_of(listening: socket.socket, host: str) -> str:
    """What to type into a browser."""
    port = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
