"""``windlass demo``: run the jobs of an example shop on a temporary SQLite file."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass._app.parts import parts_of
from windlass._cli.options.groups import examples
from windlass._cli.worker_process.supervised_child import SIGKILL_HINT
from windlass._observe.log import printable
from windlass.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from windlass._app.app import Windlass
    from windlass._cli.demo.display import Display
    from windlass._cli.demo.scenario import DemoPart
    from windlass._core.job.job import JobId, JobRecord

__all__ = ["demo"]

_PATIENCE = 40.0
_LOOK = 0.1
_STOPPING = 10.0
_LOG = 100
"""Columns of what is read as a file or in the log of a build."""


@click.command(
    epilog=examples(
        "windlass demo",
        "windlass demo --serve --hours 24",
    )
)
@click.option("--fast", is_flag=True, help="Shorten the slow jobs.")
@click.option(
    "--keep",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Write the database to this file and keep it.",
)
@click.option("--serve", is_flag=True, help="Serve a dashboard with invented jobs instead.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8383,
    show_default=True,
    help="Port of the dashboard. 0 picks a free one.",
)
@click.option(
    "--hours",
    type=click.FloatRange(0, 48),
    default=12,
    show_default=True,
    help="Hours of history in that dashboard. More hours take longer to start.",
)
def demo(*, fast: bool, keep: Path | None, serve: bool, port: int, hours: float) -> int:
    """Run the jobs of an example shop on a temporary SQLite file.

    Two worker processes send emails, make thumbnails and call webhooks. A flow computes prices and
    then prints a list of them. Some jobs fail and are retried, one fails for good, two are
    cancelled, one expires. One worker is killed in the middle of a job. A table then shows what
    happened and why. The exit code is 0 if every job ended as expected.

    --serve shows a dashboard of such a shop instead, with past jobs and new ones.
    """
    if serve:
        return _serve(port, hours)
    if os.name != "posix":
        message = "the demo starts workers, which run on Linux and macOS only"
        raise ConfigError(message)
    if keep is not None and keep.exists():
        message = f"{keep} exists already; name a file that does not"
        raise ConfigError(message)
    with ExitStack() as stack:
        if keep is None:
            folder = tempfile.mkdtemp(prefix="windlass-demo-")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            file = Path(folder) / "demo.db"
        else:
            file = keep.resolve()
        stack.enter_context(_own_settings(f"sqlite:///{file}"))
        from rich.console import Console

        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = min(console.width if "COLUMNS" in os.environ else _LOG, _LOG)
        try:
            return asyncio.run(_Demo(console, file, pace=0.4 if fast else 1.0, keep=keep).run())
        except KeyboardInterrupt:
            console.print("interrupted; all files are removed")
            return 130


def _serve(port: int, hours: float) -> int:
    from windlass._cli.dashboard.command import require_web

    require_web()
    from windlass._cli.demo.live import serve_demo

    with _own_settings("memory://"):
        return serve_demo("127.0.0.1", port, opened=timedelta(hours=hours))


@contextmanager
def _own_settings(url: str) -> Iterator[None]:
    """Hide the user's WINDLASS_… settings: the demo must not touch their database."""
    own = {name: value for name, value in os.environ.items() if name.startswith("WINDLASS_")}
    for name in own:
        del os.environ[name]
    os.environ["WINDLASS_URL"] = url
    try:
        yield
    finally:
        del os.environ["WINDLASS_URL"]
        os.environ.update(own)


class _Demo:
    def __init__(self, console: Console, file: Path, *, pace: float, keep: Path | None) -> None:
        self._console = console
        self._file = file
        self._keep = keep
        self._pace = pace
        self._ids: dict[str, list[JobId]] = {}
        self._log: list[str] = []
        self._cancelled: set[str] = set()
        self._killed_at: datetime | None = None
        self._expired = False
        self._started = 0

    async def run(self) -> int:
        """Enqueue, watch, disturb and report. Return the exit code."""
        from windlass._cli.demo.display import Display
        from windlass._cli.demo.scenario import demo_parts
        from windlass._cli.demo.tasks import app

        parts = demo_parts(pace=self._pace)
        self._open()
        async with app:
            with Display(self._console) as display:
                await self._enqueue(app, parts, display)
                async with _workers(functools.partial(self._listen, display)) as workers:
                    now = await self._watch(app, workers, display)
            return await self._report(app, parts, now)

    def _open(self) -> None:
        self._console.print()
        self._console.print("[bold]Windlass[/bold]: jobs of a small shop, two worker processes")
        self._console.print(f"[dim]one SQLite file, no server: {self._file}[/dim]\n")

    async def _enqueue(
        self, app: Windlass, parts: Mapping[str, DemoPart], display: Display
    ) -> None:
        from windlass._cli.demo.scenario import demo_flow

        for key, part in parts.items():
            jobs = await app.enqueue_many(part.calls)
            self._ids[key] = list(dict.fromkeys(job.id for job in jobs))
        flow, members = demo_flow()
        await app.start(flow)
        self._ids.update({key: list(ids) for key, ids in members.items()})
        total = sum(len(ids) for ids in self._ids.values())
        display.say(f"{total} jobs enqueued; they wait in the file until a worker starts")
        display.say("9 of them are a flow: 8 prices, then one list that waits for all of them")
        await app.job(self._ids["newsletter"][0]).cancel()
        display.say("the newsletter is cancelled while it waits: it will never run", "yellow")

    # --- while they work ---

    async def _watch(
        self, app: Windlass, workers: asyncio.subprocess.Process, display: Display
    ) -> Mapping[str, Sequence[JobRecord]]:
        from windlass._core.job.state import TERMINAL

        deadline = display.elapsed + _PATIENCE
        while True:
            stored = {job.id: job for job in await app.admin.jobs.find(limit=1000)}
            parts = {key: [stored[i] for i in ids if i in stored] for key, ids in self._ids.items()}
            display.update(parts)
            await self._meddle(app, parts, display)
            if all(job.state in TERMINAL for job in stored.values()):
                return parts
            if workers.returncode is not None or display.elapsed > deadline:
                return parts
            await asyncio.sleep(_LOOK)

    async def _meddle(
        self, app: Windlass, parts: Mapping[str, Sequence[JobRecord]], display: Display
    ) -> None:
        """Cancel a running job, and kill the worker of another."""
        from windlass._core.job.state import State

        (parcel,), (invoice,), (offer,) = parts["parcel"], parts["invoice"], parts["offer"]
        if parcel.state is State.RUNNING and "parcel" not in self._cancelled:
            self._cancelled.add("parcel")
            await app.job(parcel.id).cancel()
            display.say("follow_parcel is running and is asked to stop", "yellow")
        if offer.state is State.DISCARDED and not self._expired:
            self._expired = True
            display.say("an offer expired before it was due: discarded, not run", "magenta")
        if self._killed_at is None and invoice.state is State.RUNNING and invoice.progress:
            # After the other has been cancelled, so that it is not lost instead; not too late.
            settled = parcel.state is State.CANCELLED and self._started == 2
            if (settled and invoice.progress.fraction >= 0.2) or invoice.progress.fraction >= 0.7:
                await self._take_down_worker_of(app, invoice, display)

    async def _take_down_worker_of(self, app: Windlass, job: JobRecord, display: Display) -> None:
        for record in await app.admin.workers.list():
            if record.start.id == job.worker:
                self._killed_at = await (await parts_of(app).storage()).now()
                os.kill(record.start.pid, signal.SIGKILL)
                display.say(
                    f"kill -9 {record.start.pid}: the worker that renders the invoice is dead, "
                    f"with {record.running} running {'job' if record.running == 1 else 'jobs'}",
                    "bold red",
                )

    def _listen(self, display: Display, line: str) -> None:
        """Show some of the lines that the workers log as JSON."""
        self._log.append(line)
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            return
        text = printable(str(entry.get("message", "")).partition("\n")[0])
        task = str(entry.get("task", "")).rpartition(".")[2]
        match entry.get("event"):
            case "start":
                self._started += 1
                display.say(f"worker {entry['worker']} started, pid {entry['pid']}", "dim")
            case "retry" if entry["error_kind"] == "WorkerLost":
                pass  # told once, of the worker
            case "retry":
                error = printable(str(entry["error"]))
                display.say(f"{task}: {error}; retry in {entry['delay']:g} s", "yellow")
            case "fail":
                display.say(f"{task} failed for good: {printable(str(entry['error']))}", "red")
            case "cancel":
                display.say(f"{task} was cancelled after {entry['ran']:.1f} s", "yellow")
            case _:
                if entry.get("level") in {"warning", "error"}:
                    display.say(text.replace(f" ({SIGKILL_HINT})", ""), "cyan")

    # --- afterwards ---

    async def _report(
        self, app: Windlass, parts: Mapping[str, DemoPart], now: Mapping[str, Sequence[JobRecord]]
    ) -> int:
        from windlass._cli.demo.report import PartReport, print_report

        told = []
        for key, part in parts.items():
            histories = {str(job.id): await app.admin.jobs.history(job.id) for job in now[key]}
            told.append(PartReport(part, now[key], histories, self._killed_at))
        print_report(told, self._console)
        surprises = [line for key, part in parts.items() for line in part.surprises(now[key])]
        for line in surprises:
            self._console.print(f"[red]not as expected:[/red] {line}")
        if surprises:
            self._console.print("The last lines that the workers logged:")
            for line in self._log[-20:]:
                self._console.print(line, markup=False, soft_wrap=True)
            return 1
        self._what_next()
        return 0

    def _what_next(self) -> None:
        from windlass._cli.demo import tasks

        kept = f", on {self._keep}" if self._keep is not None else ""
        self._console.print(
            f"\nAll jobs ended as expected{kept}. Next steps:", markup=False, soft_wrap=True
        )
        for what, how in (
            ("read these tasks", tasks.__file__),
            ("write your own, in shop.py", "app = Windlass('sqlite:///jobs.db') and @app.task"),
            ("run them", "windlass worker shop:app --processes 2"),
        ):
            self._console.print(f"  {what:<29}{how}", markup=False, soft_wrap=True)


@asynccontextmanager
async def _workers(listen: Callable[[str], None]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run two workers under a supervisor while the block lasts and this process lives."""
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "windlass", "worker", "windlass._cli.demo.tasks:app"),
        *("--processes", "2", "--slots", "6", "--order", "weighted", "--log-format", "json"),
        *("--child-fd", str(theirs.fileno())),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        limit=2**20,
    )
    theirs.close()
    reading = asyncio.create_task(_lines(process.stderr, listen))
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOPPING):
                await process.wait()
        except TimeoutError:
            ours.close()  # its end: the supervisor and its workers take it for our death
            await process.wait()
        ours.close()
        await reading


async def _lines(stream: asyncio.StreamReader | None, listen: Callable[[str], None]) -> None:
    if stream is not None:
        async for line in stream:
            listen(line.decode(errors="replace").rstrip())
