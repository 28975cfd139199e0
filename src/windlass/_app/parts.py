"""The parts of one app, and the order in which they are made."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windlass._app.blocking_loop import BlockingLoop
from windlass._app.observability import Observability
from windlass._app.producer import Producer
from windlass._app.sync import BlockingClient
from windlass._client.client import Client
from windlass._client.connections import Connections, MakeClient
from windlass._client.transactional import Outbox
from windlass._core.job.job import FlowId, JobId
from windlass._observe.bus import Bus
from windlass._schedules.declarations import ScheduleRegistry
from windlass._settings.settings import Settings
from windlass._storage.open import StorageOpener
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import FlowAction
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import Clock, Seams
from windlass._tasks.app_location import AppLocator
from windlass._tasks.decorators import TaskRegistration
from windlass._tasks.handle import JobClient
from windlass._tasks.hooks import Hooks
from windlass._tasks.registry import TaskRegistry

if TYPE_CHECKING:
    from windlass._admin.admin import Admin
    from windlass._admin.session import SweepReport
    from windlass._app.app import Windlass
    from windlass._app.workers import Workers
    from windlass._plugins.installation import Plugins

__all__ = ["AppParts", "parts_of"]

ClientKind = Callable[[Storage, Settings, Seams, Bus, JobClient], Client]


class AppParts:
    """The parts of one app. Each gets what it needs when it is made.

    `parts_of` gives them to the command line, to integrations and to the test kit. Users have
    `Windlass`.
    """

    def __init__(self, app: object, settings: Settings, seams: Seams, clock: Clock) -> None:
        """Make the parts. ``app``: the object that lifespans get and child processes look for."""
        self.settings = settings
        self.tasks: TaskRegistry = TaskRegistry()
        self.hooks: Hooks = Hooks(app)
        self.schedules: ScheduleRegistry = ScheduleRegistry()
        """The schedules that the code declares."""
        self.location: AppLocator = AppLocator(app, self.tasks)
        self.connections: Connections = Connections(
            StorageOpener(settings, clock), seams, self.make_client
        )
        loop = self.blocking_loop = BlockingLoop(self.connections)
        self.observability: Observability = Observability(
            self.connections, self.hooks, self.tasks, loop.start, settings
        )
        outbox = Outbox(settings, self.connections, self.observability.stamp, loop.start)
        self.producer: Producer = Producer(
            self.connections,
            self.tasks,
            self.hooks,
            outbox,
            loop,
            payload_limit=settings.payload_limit,
            actions=self,
        )
        self.registration: TaskRegistration = TaskRegistration(self.tasks, self.producer)
        self.blocking: BlockingClient = BlockingClient(
            self.producer, outbox, loop, admin=lambda: self.admin
        )
        self._admin: Admin | None = None
        self._plugins: Plugins | None = None
        self._making = threading.Lock()
        self._loaded = False
        self._new_job_ids = seams.new_job_ids

    # --- made at first use: a process that only enqueues does not import them ---

    @property
    def plugins(self) -> Plugins:
        """The plugins that are installed."""
        from windlass._plugins.installation import Plugins  # noqa: PLC0415

        with self._making:
            if self._plugins is None:
                self._plugins = Plugins(
                    self.settings, self.producer, self.schedules, self.connections
                )
            return self._plugins

    @functools.cached_property
    def workers(self) -> Workers:
        """Makes and runs workers."""
        from windlass._app.workers import Workers  # noqa: PLC0415

        return Workers(self)

    @property
    def admin(self) -> Admin:
        """Answers operators and carries out their actions."""
        if self._admin is None:
            from windlass._admin.admin import Admin  # noqa: PLC0415
            from windlass._admin.jobs.redaction import KeyMasks  # noqa: PLC0415
            from windlass._admin.session import AdminSession  # noqa: PLC0415

            self._admin = Admin(
                AdminSession(
                    storage=self.connections.storage,
                    bus=self.hooks.bus,
                    settings=self.settings,
                    new_ids=self._new_job_ids,
                    masks=KeyMasks(self.connections.storage),
                    tasks=self.tasks,
                    plugins=self.plugins,
                    sweep=self._sweep,
                )
            )
        return self._admin

    def act_as(self, who: str) -> None:
        """Record the actions of ``app.admin`` in this process under this name."""
        self._admin = self.admin.acting(who)

    # --- what several parts need ---

    async def storage(self) -> Storage:
        """Return the storage, opened for this event loop."""
        return await self.connections.storage()

    def make_client(self, storage: Storage, seams: Seams, kind: ClientKind = Client) -> Client:
        """Make the client of one event loop. Handles of its jobs ask the producer, because they may
        outlive the loop.
        """
        client = kind(storage, self.settings, seams, self.hooks.bus, self.producer)
        self.observability.surround(client)
        return client

    def load(self) -> None:
        """Import the modules, and install the plugins, that the settings name; once."""
        if not self._loaded:
            for module in self.settings.imports:
                importlib.import_module(module)
            if self.settings.plugins:
                self.plugins.load()
            self._loaded = True

    def queues(self) -> tuple[str, ...]:
        """List every queue that tasks or integrations name, the default one first."""
        self.load()
        default = self.settings.default_queue
        return (default, *sorted(self.tasks.queues(self.settings) - {default}))

    @contextmanager
    def on_storage(
        self, opener: StorageOpener, seams: Seams, make_client: MakeClient | None = None
    ) -> Iterator[None]:
        """Use another storage while the block lasts; a background loop that it started ends."""
        before = self.blocking_loop.loop
        try:
            with self.connections.replaced(opener, seams, make_client):
                yield
        finally:
            if self.blocking_loop.loop is not before:
                self.blocking_loop.stop()

    async def _sweep(self) -> SweepReport:
        return await self.workers.sweep()

    async def cancel(self, job: JobId, children: bool, /) -> CancelAnswer:  # noqa: FBT001
        """Cancel a job as an operator does."""
        return await self.admin.jobs.cancel(job, children=children)

    async def act_on_flow(self, flow: FlowId, action: FlowAction, /) -> ActionResult:
        """Cancel or retry a flow as an operator does."""
        flows = self.admin.flows
        return await (flows.cancel(flow) if action == "cancel" else flows.retry(flow))


def parts_of(app: Windlass) -> AppParts:
    """Return the parts of ``app``: for the command line, integrations and the test kit."""
    return app._parts  # noqa: SLF001 -- the one way to them
