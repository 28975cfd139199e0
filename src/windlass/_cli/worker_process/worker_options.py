"""Options of a worker command, checked as far as possible without the app."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from windlass._app.app import Windlass
from windlass._cli.output.terminal import LogFormat
from windlass._settings.settings import QueueOrder, WorkerSettings, parse_duration
from windlass._tasks.task import check_name
from windlass.errors import ConfigError, suggestion

__all__ = ["WorkerOptions", "check_queues"]

_LAST_PORT = 65535

log = logging.getLogger("windlass")


def check_queues(settings: WorkerSettings, app: Windlass) -> None:
    """Refuse a weight for a queue that is not served; warn of a queue that no task names."""
    for queue in settings.weights or {}:
        if queue not in settings.served:
            near = suggestion(queue, settings.served)
            message = f"--weight {queue}=… names a queue that is not served.{near}"
            raise ConfigError(message)
    named = app.tasks.queues(app.settings)
    for queue in settings.served:
        if queue not in named and (near := suggestion(queue, named - set(settings.served))):
            log.warning("no task uses the queue %r.%s", queue, near)


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as they were written, so that a supervisor can hand them to its children."""

    target: str
    queues: tuple[str, ...] = ()
    """NAME or NAME=SLOTS."""
    others: bool = False
    weights: tuple[str, ...] = ()
    """NAME=N."""
    slots: int | None = None
    order: QueueOrder | None = None
    until_empty: bool = False
    max_jobs: int | None = None
    max_megabytes: int | None = None
    grace: str | None = None
    log_level: str = "info"
    log_format: LogFormat = "human"
    summary: bool = True
    health_host: str = "127.0.0.1"
    health_names: tuple[str, ...] = ()
    health_port: int | None = None
    metrics_port: int | None = None
    health_file: str | None = None
    wait_for_store: str | None = None
    allow_memory: bool = False
    """For one process only: a supervisor's children refuse memory:// anyway."""

    def __post_init__(self) -> None:
        self.worker_options()
        self.grace_period()
        self.store_patience()

    def arguments(self) -> list[str]:
        """Return these options as the command line of one child."""
        written = ["worker", self.target, "--log-level", self.log_level]
        written += ["--log-format", self.log_format]
        for flag, values in (
            ("--queue", self.queues),
            ("--weight", self.weights),
            ("--health-name", self.health_names),
        ):
            for value in values:
                written += [flag, value]
        for flag, one in (
            ("--slots", self.slots),
            ("--order", self.order),
            ("--max-jobs", self.max_jobs),
            ("--max-megabytes", self.max_megabytes),
            ("--grace", self.grace),
            ("--health-host", self.health_host),
            ("--health-port", self.health_port),
            ("--metrics-port", self.metrics_port),
            ("--health-file", self.health_file),
            ("--wait-for-store", self.wait_for_store),
        ):
            if one is not None:
                written += [flag, str(one)]
        for flag, given in (("--until-empty", self.until_empty), ("--others", self.others)):
            if given:
                written.append(flag)
        return written

    def grace_period(self) -> timedelta | None:
        """Return how long running jobs may take after a stop; None follows the app."""
        return None if self.grace is None else parse_duration(self.grace, "--grace")

    def store_patience(self) -> timedelta | None:
        """Return how long to wait at the start for a storage that is away or full;
        None: for ever.
        """
        given = self.wait_for_store
        return None if given is None else parse_duration(given, "--wait-for-store")

    def ports(self, number: int | None = None) -> list[int]:
        """Return where to answer. ``number``: the place under a supervisor; the first takes the
        ports as they are given, the next one those after them.
        """
        given = dict.fromkeys(port for port in (self.health_port, self.metrics_port) if port)
        return [port + (number or 1) - 1 for port in given]

    def check_ports(self, processes: int) -> None:
        """Refuse ports that this number of processes cannot share."""
        taken: set[int] = set()
        for number in range(1, processes + 1):
            for port in self.ports(number):
                if port > _LAST_PORT or port in taken:
                    message = (
                        f"each of {processes} processes uses the next port, and port {port} is not "
                        f"free for process {number}: choose --health-port and --metrics-port "
                        f"further apart, or the same"
                    )
                    raise ConfigError(message)
                taken.add(port)

    def worker_options(self) -> dict[str, Any]:
        """Keyword arguments of ``app.worker_settings``."""
        options: dict[str, Any] = {
            "until_empty": self.until_empty,
            "others": self.others,
            "max_jobs": self.max_jobs,
            "max_megabytes": self.max_megabytes,
        }
        if self.slots is not None:
            options["slots"] = self.slots
        queues = _queues(self.queues)
        if queues is not None:
            options["queues"] = queues
        weights = _weights(self.weights)
        if weights:
            self._check_weights(weights, queues)
            options["weights"] = weights
        options["order"] = self.order or ("weighted" if weights else "strict")
        shares = self.slots is not None or self.others or options["order"] != "strict"
        if isinstance(queues, dict) and shares:
            message = (
                "NAME=SLOTS does not go with --slots, --others, --order and --weight: leave out "
                "these options, or the numbers"
            )
            raise ConfigError(message)
        return options

    def _check_weights(
        self, weights: dict[str, int], queues: Sequence[str] | dict[str, int] | None
    ) -> None:
        if self.order == "strict":
            message = "--weight needs --order weighted: in strict order the first queue goes first"
            raise ConfigError(message)
        for name in weights:
            if queues is not None and name not in queues and not self.others:
                near = suggestion(name, list(queues))
                message = f"--weight {name}=… names a queue that is not served.{near}"
                raise ConfigError(message)


def _queues(written: Sequence[str]) -> tuple[str, ...] | dict[str, int] | None:
    """Return all queues with numbers, or none."""
    if not written:
        return None
    for text in written:
        if "," in text:
            each = " ".join(f"--queue {name.strip()}" for name in text.split(","))
            message = f"--queue takes one queue, got {text}: write {each}"
            raise ConfigError(message)
    pairs = [_pair(text, "--queue", "SLOTS") for text in written]
    _once([name for name, _ in pairs], "--queue")
    numbers = [number for _, number in pairs if number is not None]
    if not numbers:
        return tuple(name for name, _ in pairs)
    if len(numbers) < len(pairs):
        message = (
            "give every --queue its slots (mail=10), or none of them (they then share --slots): "
            f"got {', '.join(written)}"
        )
        raise ConfigError(message)
    return {name: number for name, number in pairs if number is not None}


def _weights(written: Sequence[str]) -> dict[str, int]:
    weights: dict[str, int] = {}
    for text in written:
        name, number = _pair(text, "--weight", "N")
        if number is None:
            message = f"--weight takes NAME=N, for example --weight mail=3, got {text!r}"
            raise ConfigError(message)
        if name in weights:
            _once([name, name], "--weight")
        weights[name] = number
    return weights


def _pair(text: str, flag: str, what: str) -> tuple[str, int | None]:
    name, equals, number = text.rpartition("=")
    if not equals:
        return check_name(text, "a queue's name"), None
    if not number.isascii() or not number.isdigit() or int(number) < 1:
        message = f"{flag} {text}: {what} must be a whole number from 1, got {number!r}"
        raise ConfigError(message)
    return check_name(name, "a queue's name"), int(number)


def _once(names: Iterable[str], flag: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            message = f"{flag} names {name!r} twice"
            raise ConfigError(message)
        seen.add(name)
