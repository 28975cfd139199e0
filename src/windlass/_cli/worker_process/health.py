"""Health of a worker for its supervisor: pages for probes, and a file.

The worker's own event loop answers the pages and touches the file. A loop that is stuck does
neither, and a liveness probe finds that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._cli.addresses import is_loopback
from windlass._cli.worker_process.health_server import HealthServer, HttpResponse, Page
from windlass._cli.worker_process.worker_options import WorkerOptions
from windlass._observe.log import brief
from windlass._system.seams import monotonic
from windlass._worker.worker import Worker
from windlass.errors import ConfigError

__all__ = ["WorkerHealth"]

log = logging.getLogger("windlass")


class WorkerHealth:
    """One worker process as its surroundings see it."""

    def __init__(self, plan: WorkerOptions, app: Windlass, number: int | None) -> None:
        """Make it. ``number``: its place under a supervisor, from 1; the ports and the file follow
        it.
        """
        self._host = plan.health_host
        self._names = _names(plan)
        self._ports = plan.ports(number)
        self._app = app
        self._file = None
        if plan.health_file is not None:
            name = plan.health_file if number is None else f"{plan.health_file}.{number}"
            self._file = _File(Path(name))
        if plan.metrics_port is not None:
            app.metrics()
        self._responder: HealthServer | None = None
        self._worker: Worker | None = None
        self._reached: float | None = None
        self._waits = False

    async def open(self) -> None:
        """Answer from here on: alive, and not ready yet."""
        if self._file is not None:
            self._file.prepare()
        if not self._ports:
            return
        pages: dict[str, Page] = {"/livez": self._livez, "/readyz": self._readyz}
        if parts_of(self._app).observability.measured is not None:
            pages["/metrics"] = self._metrics
        self._responder = HealthServer(pages, self._names)
        for port in self._ports:
            await self._responder.open(self._host, port)
            log.info("%s on http://%s:%d", ", ".join(pages), _shown(self._host), port)

    def watch(self, worker: Worker) -> None:
        """Speak for this worker."""
        self._worker = worker

    def wait_for_storage(self) -> None:
        """Say that the storage is away or full."""
        self._waits = True

    def beaten(self) -> None:
        """Note that the store was reached, and takes this worker for living."""
        self._reached = monotonic()
        if self._file is not None:
            self._file.touch()

    async def close(self) -> None:
        """Answer no more."""
        if self._responder is not None:
            await self._responder.close()
        if self._file is not None:
            self._file.remove()

    # --- the pages ---

    async def _livez(self, _: str) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, b"alive\n")

    async def _readyz(self, _: str) -> HttpResponse:
        why = self._not_ready()
        if why:
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {why}\n".encode())
        return HttpResponse(HTTPStatus.OK, b"ready\n")

    def _not_ready(self) -> str:
        if self._worker is not None and self._worker.reason is not None:
            return "draining"
        if self._worker is None or self._reached is None:
            return "waiting for the storage" if self._waits else "starting"
        silence = timedelta(seconds=monotonic() - self._reached)
        if silence > self._app.settings.lease:
            return f"the storage has not answered for {brief(silence)}"
        return ""

    async def _metrics(self, accept: str) -> HttpResponse:
        body, content_type = await self._app.metrics().page(accept)
        return HttpResponse(HTTPStatus.OK, body, content_type)


class _File:
    """A file whose time of change is the worker's last sign of life."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def prepare(self) -> None:
        """Remove what a killed process left: it says nothing about this one."""
        folder = self._path.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            message = f"--health-file {self._path}: no file can be made in {folder}"
            raise ConfigError(message)
        if self._path.is_dir():
            message = f"--health-file {self._path} is a directory"
            raise ConfigError(message)
        self.remove()

    def touch(self) -> None:
        try:
            # Readable by us alone, with any umask: a process that could write it could pretend that
            # the worker lives. A symbolic link is not followed.
            made = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.utime(made)
            finally:
                os.close(made)
        except OSError as error:
            if not self._failed:  # once: a beat comes every few seconds
                log.warning("the health file %s cannot be touched: %s", self._path, error)
            self._failed = True

    def remove(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the health file %s cannot be removed: %s", self._path, error)


def _names(plan: WorkerOptions) -> Collection[str] | None:
    """Return the host names that the ports answer to. None: any name, because other machines may
    have other names for this one.
    """
    if plan.health_names:
        return plan.health_names
    return {plan.health_host, "localhost"} if is_loopback(plan.health_host) else None


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
