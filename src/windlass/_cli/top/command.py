"""``windlass top``: queues, workers and errors, refreshed in place."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from windlass._cli.options.groups import examples
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_argument,
    target_of,
    url_option,
)
from windlass._cli.output.terminal import ignore_broken_pipe

if TYPE_CHECKING:
    from rich.console import Console

    from windlass._app.app import Windlass
    from windlass._cli.top.frame_reader import TopFrame

__all__ = ["top"]

_WIDTH = 140
"""Of a frame that goes into a file or a pipe."""
_LEAST = timedelta(milliseconds=100)


def _interval(_context: click.Context, _option: click.Parameter, text: str) -> timedelta:
    from windlass._settings.settings import parse_duration
    from windlass.errors import ConfigError

    try:
        span = parse_duration(text, "it")
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    if span < _LEAST:
        raise click.BadParameter("at least 100ms: every refresh costs the storage a few reads")
    return span


@click.command(
    epilog=examples(
        "windlass top shop:app --every 500ms",
        "windlass top shop:app --once",
    )
)
@target_argument
@click.option(
    "--every",
    metavar="TIME",
    default="2s",
    show_default=True,
    callback=_interval,
    help="Refresh interval.",
)
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@url_option
@json_option
def top(target: str | None, url: str | None, *, every: timedelta, once: bool, as_json: bool) -> int:
    """Watch queues, workers, throughput and the latest errors live. Press q to quit.

    Into a pipe or a file it writes frame after frame, with --json one per line.
    """

    async def watch(app: Windlass) -> None:
        view = _Lines() if as_json else _view(once=once, every=every)
        await _watch(app, view, every.total_seconds(), once=once)

    with ignore_broken_pipe(), suppress(KeyboardInterrupt):
        run_on_target(target_of(target, url), watch)
    return 0


async def _watch(app: Windlass, view: _Frames, every: float, *, once: bool) -> None:
    """Show frames until the user quits. Wait for a storage that is down."""
    from windlass._cli.top.frame_reader import read_frame
    from windlass.errors import StorageError

    over = asyncio.Event()
    with view.shown(over):
        while not over.is_set():
            try:
                view.show(await read_frame(app))
            except StorageError as error:
                if once:
                    raise
                view.trouble(str(error))
            if once:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await over.wait()


# --- where it is shown ----------------------------------------------------------------------------


class _Frames:
    """One frame below the other."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def shown(self, over: asyncio.Event) -> Iterator[None]:  # noqa: ARG002 -- no prompt here
        yield

    def show(self, seen: TopFrame) -> None:
        from windlass._cli.output.tables import print_line
        from windlass._cli.top.frame import render_frame

        with self._console.capture() as captured:
            self._console.print(render_frame(seen), "")
        for line in captured.get().splitlines():
            print_line(line.rstrip())

    def trouble(self, text: str) -> None:
        click.echo(f"Error: {text}", err=True)


class _Lines(_Frames):
    """One line of JSON for each frame."""

    def __init__(self) -> None:
        """Make it without a console: machines have none."""

    def show(self, seen: TopFrame) -> None:
        from windlass._cli.output.tables import print_json
        from windlass._cli.top.frame import fields

        print_json(fields(seen))


class _Screen(_Frames):
    """The whole screen, until q is pressed; what was on it before comes back."""

    def __init__(self, console: Console, every: timedelta) -> None:
        from rich.live import Live

        from windlass._observe.log import brief

        super().__init__(console)
        self._note = f"every {brief(every)}, q quits"
        self._live = Live(console=console, screen=True, auto_refresh=False)
        self._seen: TopFrame | None = None

    @contextmanager
    def shown(self, over: asyncio.Event) -> Iterator[None]:
        with _keys(over), self._live:
            yield

    def show(self, seen: TopFrame) -> None:
        from windlass._cli.top.frame import render_frame

        self._seen = seen
        self._live.update(render_frame(seen, self._note), refresh=True)

    def trouble(self, text: str) -> None:
        """Keep the last frame and show why it is old."""
        from rich.console import Group
        from rich.text import Text

        from windlass._cli.top.frame import render_frame
        from windlass._observe.log import printable

        said = Text(f"The storage does not answer: {printable(text)}", style="bold red")
        parts = [said] if self._seen is None else [said, render_frame(self._seen, self._note)]
        self._live.update(Group(*parts), refresh=True)


def _view(*, once: bool, every: timedelta) -> _Frames:
    from rich.console import Console

    screen = sys.stdout.isatty()
    console = Console(width=None if screen else _WIDTH, highlight=False)
    smart = screen and os.environ.get("TERM", "") not in {"", "dumb"}
    return _Screen(console, every) if smart and not once else _Frames(console)


@contextmanager
def _keys(over: asyncio.Event) -> Iterator[None]:
    """Quit at the key q. Where keys cannot be read one by one, only Ctrl-C quits."""
    try:
        import termios
        import tty
    except ImportError:  # not on Windows
        yield
        return
    try:
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
    except (OSError, ValueError, termios.error):  # not a terminal
        yield
        return
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        keys = os.read(keyboard, 64).lower()
        if not keys or keys.startswith((b"q", b"\x04")):  # hung up, or asked for
            over.set()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, pressed)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
