"""The app: the only module that knows everything."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from windlass._admin.jobs.redaction import KeyMasks
from windlass._admin.session import AdminSession
from windlass._app.observability import Observability
from windlass._app.producer import Producer
from windlass._app.sync import BlockingClient
from windlass._client.client import Client
from windlass._client.transactional import Outbox
from windlass._core.values.redaction import redacted_url
from windlass._settings.keywords import SettingsKeywords, WorkerKeywords
from windlass._settings.settings import Settings, WorkerSettings, load_settings
from windlass._storage.open import StorageOpener
from windlass._storage.protocol.storage import Storage
from windlass._system.greenlets import running_loop
from windlass._system.seams import SYSTEM_CLOCK, Clock, Seams
from windlass._tasks.on_failure import check_on_failure_tasks
from windlass._worker.engine import WorkerDependencies
from windlass._worker.worker import Worker
from windlass.admin import Admin
from windlass.errors import AppClosed, ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry
    from starlette.applications import Starlette

    from windlass._observe.prometheus import Metrics

__all__ = ["Windlass"]


log = logging.getLogger("windlass")


def _warn_of_other_url(url: str) -> None:
    """Say that ``WINDLASS_URL`` changes nothing, because the code names another storage."""
    named = os.environ.get("WINDLASS_URL")
    if named and named != url:
        log.warning(
            "WINDLASS_URL is %s, but the code has Windlass(%r), which takes precedence. Write "
            "Windlass() in the code to use WINDLASS_URL, or unset the variable",
            redacted_url(named),
            redacted_url(url),
        )


class _AppLoop(msgspec.Struct):
    """The app's hold on one event loop."""

    loop: asyncio.AbstractEventLoop
    storage: Storage
    client: Client


_INHERITED: list[_AppLoop] = []
"""Links of a parent process. A forked child must neither use nor close them, so that it never
touches its parent's database; kept here, their destructors never run."""


class Windlass(Producer):
    """Tasks, storage, client, worker and admin of one application.

    ``async with app:`` opens it; used unopened, it opens at first use. One app may be used from
    several event loops, from threads and after a fork: each gets its own storage connection.
    """

    _warns = True
    """Whether a URL in the code that ``WINDLASS_URL`` does not change is worth a warning."""

    def __init__(
        self,
        url: str | None = None,
        *,
        config: str | Path | None = None,
        seams: Seams | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **settings: Unpack[SettingsKeywords],
    ) -> None:
        """Settings come from the arguments, ``WINDLASS_…`` variables and the TOML file.

        What each means: `Settings`. Durations are timedeltas, seconds, or
        text such as ``"30s"``.

        ``seams`` and ``clock`` are for tests: see ``windlass.testing``.
        """
        super().__init__()
        self.settings: Settings = load_settings(url, settings, config=config)
        if self._warns and url is not None:
            _warn_of_other_url(self.settings.url)
        self.blocking: BlockingClient = BlockingClient(self)
        self._outbox = Outbox(self, self.blocking.start)
        self._seams = seams or Seams(wall=clock.now)
        self.admin: Admin = Admin(
            AdminSession(
                storage=self.storage,
                bus=self.bus,
                settings=self.settings,
                new_ids=self._seams.new_job_ids,
                masks=KeyMasks(self.storage),
                tasks=self.tasks,
                plugins=self.plugins,
            )
        )
        self._opener = StorageOpener(self.settings, clock)
        self._make_client: Callable[..., Client] = Client
        self._links: dict[asyncio.AbstractEventLoop, _AppLoop] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[_AppLoop]] = {}
        self._pid = os.getpid()
        self._imported = False
        self._install_own()
        self.watch: Observability = Observability(self.storage, self.bus, self.layers)

    def __repr__(self) -> str:
        return f"<Windlass {self._opener.scheme} with {len(self.tasks)} tasks>"

    @property
    def payload_limit(self) -> int:
        """Largest payload in bytes."""
        return self.settings.payload_limit

    def load(self) -> None:
        """Import the modules named in ``imports``, so that their tasks are registered."""
        if not self._imported:
            for module in self.settings.imports:
                importlib.import_module(module)
            self._install_named()
            self._imported = True

    # --- working ---

    @asynccontextmanager
    async def worker(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        others: bool = False,
        **settings: Unpack[WorkerKeywords],
    ) -> AsyncIterator[Worker]:
        """A worker inside your own process, as long as the block lasts.

        ``queues``: names served from one pool of ``slots``, or a mapping of names to slots of
        their own. ``others``: after these names also every other queue that a task names. Other
        settings: see `WorkerSettings`.
        """
        wanted = self.worker_settings(queues=queues, others=others, **settings)
        worker = await self.make_worker(wanted)
        running = asyncio.get_running_loop().create_task(worker.run())
        self.watch.enter(worker)
        started = asyncio.ensure_future(worker.started.wait())
        try:
            await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            yield worker
        finally:
            started.cancel()
            worker.stop()
            try:
                await running
            finally:
                self.watch.leave(worker)

    def worker_settings(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        others: bool = False,
        **settings: Unpack[WorkerKeywords],
    ) -> WorkerSettings:
        """Worker settings with this app's defaults filled in."""
        given: dict[str, Any] = {"slots": self.settings.slots, **settings}
        if isinstance(queues, Mapping):
            if others:
                message = (
                    "others (--others) is for queues that share their slots, and each of these "
                    "has its slots: name the others with theirs, or leave the numbers out"
                )
                raise ConfigError(message)
            given["queues"] = dict(queues)
        elif queues is not None:
            named = (queues,) if isinstance(queues, str) else tuple(queues)
            more = self._queues_of_tasks() if others else ()
            given["shared"] = (*named, *(queue for queue in more if queue not in named))
        else:
            given["shared"] = self._queues_of_tasks()
        try:
            return WorkerSettings(**given)
        except TypeError as error:
            raise ConfigError(str(error)) from error

    def _queues_of_tasks(self) -> tuple[str, ...]:
        """Every queue that tasks or integrations name, the default one first."""
        self.load()
        named = {task.settings.queue for task in self.tasks if task.settings.queue}
        named |= self.more_queues
        default = self.settings.default_queue
        return (default, *sorted(named - {default}))

    async def make_worker(self, settings: WorkerSettings, **parts: Any) -> Worker:
        """A worker that is not running yet."""
        self.load()
        around = await self.surroundings()
        return Worker(around, settings, **parts)

    async def surroundings(self) -> WorkerDependencies:
        """What a worker on this event loop needs."""
        link = await self._link()
        check_on_failure_tasks(self.tasks)
        await link.client.define(spec for task in self.tasks for spec in task.needs)
        plans = self.planner(link.client.define)
        await plans()  # what cannot be planned is told here
        return WorkerDependencies(
            storage=link.storage,
            tasks=self.tasks,
            settings=self.settings,
            seams=self._seams,
            bus=self.bus,
            enqueue=self.enqueue_call,
            state=lambda: self.state,
            layers=self.layers,
            living=self.living,
            plans=plans,
            chores=self.chores,
            on_change=self.declarations.on_change,
            services=self.services,
            locate=self.locate,
        )

    # --- being watched ---

    def metrics(self, registry: CollectorRegistry | None = None) -> Metrics:
        """Count and time the jobs of this process for Prometheus; needs ``windlass[metrics]``.

        ``registry``: prometheus-client's global one if none is given. Asked again, the answer is
        the same object.
        """
        return self.watch.metrics(registry, self.blocking.start)

    def tracing(
        self, provider: TracerProvider | None = None, *, meters: MeterProvider | None = None
    ) -> None:
        """Make OpenTelemetry spans of enqueues and runs; needs ``windlass[otel]``.

        ``provider``: the one that is set globally if none is given. ``meters``: metrics, too, if
        one is given. Asked again, nothing changes.
        """
        url = self.settings.url
        self.watch.trace(provider, [link.client for link in list(self._links.values())], url)
        if meters is not None:
            self.watch.meter(meters, self.blocking.start, url)

    def dashboard(self, auth: Any = None, **settings: Any) -> Starlette:
        """Pages to look at everything and to act, as an ASGI app; needs ``windlass[web]``.

        ``auth``: who may come in; see `windlass._web.app.make_dashboard` for the rest.
        """
        # By name: it stands above this module, and what it needs is an extra.
        web: Any = importlib.import_module("windlass._web.app")
        made: Starlette = web.make_dashboard(self, auth, **settings)
        return made

    # --- opening and closing ---

    async def storage(self) -> Storage:
        """The storage, opened for this event loop."""
        return (await self._link()).storage

    async def __aenter__(self) -> Self:
        """Open for this event loop."""
        await self._link()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close for this event loop."""
        await self.close()

    async def close(self) -> None:
        """Finish what is under way on this event loop and let go. Using the app reopens it.

        Other event loops go on; ``app.blocking.close()`` ends the one of the blocking calls.
        """
        link = self._links.pop(asyncio.get_running_loop(), None)
        if link is not None:
            await link.client.close()
            await link.storage.close()

    async def _settle(self) -> None:
        """Finish what is under way on this event loop, without letting go."""
        link = self._links.get(asyncio.get_running_loop())
        if link is not None:
            await link.client.close()

    @contextmanager
    def _arranged(
        self, opener: StorageOpener, seams: Seams, make_client: Callable[..., Client]
    ) -> Iterator[None]:
        """Other surroundings for a while: what ``windlass.testing`` is made of."""
        before = self._opener, self._seams, self._make_client, self._links, self._opening
        self._opener, self._seams, self._make_client = opener, seams, make_client
        self._links, self._opening = {}, {}
        try:
            yield
        finally:
            self._opener, self._seams, self._make_client, self._links, self._opening = before

    async def _client(self) -> Client:
        link = self._links.get(running_loop())
        if link is None or self._pid != os.getpid():
            link = await self._link()
        return link.client

    async def _link(self) -> _AppLoop:
        self._notice_fork()
        loop = running_loop()
        link = self._links.get(loop)
        if link is not None:
            return link
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._open(loop))
            opening.add_done_callback(lambda _: self._opening.pop(loop, None))
        # Shielded: the first caller's cancellation must not fail the others.
        return await asyncio.shield(opening)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> _AppLoop:
        await self._close_dead_loops()
        storage = await self._opener.open()
        client = self._make_client(storage, self.settings, self._seams, self.bus, self)
        if self.watch.tracing is not None:
            client.surround(self.watch.tracing.around)
        link = self._links[loop] = _AppLoop(loop, storage, client)
        return link

    async def _close_dead_loops(self) -> None:
        """Let go of storages whose event loop has ended without closing the app."""
        for loop in [loop for loop in list(self._links) if loop.is_closed()]:
            await self._links.pop(loop).storage.close()

    def _notice_fork(self) -> None:
        if self._pid == os.getpid():
            return
        if not self._opener.shared:
            message = (
                "memory:// belongs to one process, and this is a forked child: its jobs would "
                "never run. Use sqlite:///jobs.db for several processes."
            )
            raise AppClosed(message)
        self._pid = os.getpid()
        _INHERITED.extend(self._links.values())
        self._links.clear()
        self._opening.clear()
