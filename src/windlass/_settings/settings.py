"""Settings: frozen, checked when they are made, from arguments, environment and a TOML file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from windlass._core.limits.backoff import Backoff
from windlass._core.values.grants import Grants
from windlass._core.values.names import check_queue, shown
from windlass._core.values.payload import MIB
from windlass._core.values.redaction import MASK, redacted_url
from windlass._settings.durations import parse_backoff, parse_duration
from windlass.errors import ConfigError, InvalidArgument, suggestion

__all__ = [
    "QueueOrder",
    "Settings",
    "StoredLogs",
    "WorkerSettings",
    "load_settings",
    "parse_duration",
]

_MAX_TEXT = 16 * MIB
_MOST = 1_000_000
_VARIABLE = re.compile(
    r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<otherwise>[^}]*))?\})?"
)
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")

QueueOrder = Literal["strict", "weighted"]
StoredLogs = Literal["off", "debug", "info", "warning", "error"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an app can be told. Durations are timedeltas, or seconds, or text such as ``"30s"``."""

    url: str
    default_queue: str = "default"
    max_attempts: int = 5
    timeout: timedelta | None = None
    """For jobs that were stored without one, of tasks that have none: ``"30s"``, ``"5m"``."""
    backoff: Backoff | None = None
    """For tasks and queues that have none."""
    keep_succeeded: timedelta = timedelta(days=7)
    keep_failed: timedelta = timedelta(days=30)
    keep_rollups: timedelta = timedelta(days=30)
    keep_events: timedelta = timedelta(days=7)
    keep_audit: timedelta = timedelta(days=90)
    event_log: bool = False
    """Keep every start and end of a run, and whatever else befalls a job, as an event."""
    stored_logs: StoredLogs = "info"
    """What a handler logs at this level or above is kept with its run."""
    payload_limit: int = MIB
    result_limit: int = MIB
    error_limit: int = 64 * 1024
    missing_task: Literal["wait", "fail"] = "wait"
    """What becomes of jobs that a worker cannot run: it lacks the task, or their arguments do not
    fit."""
    misfit_for: timedelta = timedelta(hours=1)
    """A job whose arguments do not fit fails so long after a worker first met it."""
    durability: Literal["full", "normal", "local", "replicated", "none"] | None = None
    """None: the backend's own default, which loses nothing that was acknowledged."""
    replicas: int = 1
    """Redis with durability ``replicated``: how many copies make an answer."""
    schema: str = "windlass"
    """PostgreSQL: where the tables stand."""
    prefix: str = "windlass"
    """Redis: what every key starts with, so that several deployments can share a server."""
    allow_network_filesystem: bool = False
    heartbeat: timedelta = timedelta(seconds=5)
    lease: timedelta = timedelta(seconds=30)
    reap_every: timedelta = timedelta(seconds=5)
    poll: timedelta = timedelta(seconds=1)
    grace: timedelta = timedelta(seconds=30)
    max_throttle: timedelta = timedelta(hours=1)
    """The longest wait that a handler's ``Throttled(after)`` is taken at its word for."""
    slots: int = 10
    on_isolation: Literal["continue", "cancel"] = "continue"
    child_max_jobs: int | None = None
    """A child process of ``run_in="process"`` is replaced after so many jobs …"""
    child_max_megabytes: int | None = None
    """… or when it uses more memory than this after one."""
    child_memory_limit: int | None = None
    """Megabytes at which a child process is killed while it runs a job."""
    imports: tuple[str, ...] = ()
    plugins: dict[str, Grants] = {}
    """Entry points of installed packages to load, and what each of them may do."""
    dashboard_auth: tuple[str, ...] = ()
    """Who may see the dashboard: lines of NAME:ROLE:HASH, made by ``windlass dashboard``."""

    def __repr__(self) -> str:
        """Without passwords: settings end up in logs and bug reports."""
        said = {name: getattr(self, name) for name in self.__struct_fields__}
        said["url"] = redacted_url(self.url)
        said["dashboard_auth"] = (MASK,) * len(self.dashboard_auth)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def __post_init__(self) -> None:
        if self.heartbeat * 3 > self.lease:
            message = (
                f"heartbeat ({self.heartbeat}) must fit three times into lease ({self.lease}): "
                f"one missed beat must not cost a worker its claims"
            )
            raise ConfigError(message)
        for name in ("max_attempts", "slots", "replicas"):
            _at_least(name, getattr(self, name), 1)
            if getattr(self, name) > _MOST:
                message = f"{name} may be at most {_MOST:,}, got {getattr(self, name):,}"
                raise ConfigError(message)
        try:
            check_queue(self.default_queue, "default_queue")
        except InvalidArgument as error:
            raise ConfigError(str(error)) from None
        if not _SCHEMA.fullmatch(self.schema):
            message = (
                f"schema is a name for PostgreSQL such as windlass or app_jobs (small letters, "
                f"digits and _, at most 51), got {self.schema!r}"
            )
            raise ConfigError(message)
        if not _PREFIX.fullmatch(self.prefix):
            message = (
                f"prefix is a name for Redis such as windlass or shop-jobs (letters, digits and "
                f"any of _ . : / -, at most 100), got {self.prefix!r}"
            )
            raise ConfigError(message)
        for name in ("payload_limit", "result_limit", "error_limit"):
            _at_least(name, getattr(self, name), 256)
            if getattr(self, name) > _MAX_TEXT:
                message = f"{name} may be at most {_MAX_TEXT:,} bytes, got {getattr(self, name):,}"
                raise ConfigError(message)
        _some_or_none(self, "child_max_jobs", "child_max_megabytes", "child_memory_limit")
        for name in ("heartbeat", "lease", "reap_every", "poll", "max_throttle"):
            if getattr(self, name) <= timedelta(0):
                message = f"{name} must be longer than nothing"
                raise ConfigError(message)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker can be told."""

    queues: Mapping[str, int] | None = None
    """Queue to slots of its own. None: all of ``shared`` from one pool."""
    shared: Sequence[str] = ("default",)
    weights: Mapping[str, int] | None = None
    """For order ``weighted``; a queue without a weight counts 1."""
    order: QueueOrder = "strict"
    slots: int = 10
    max_jobs: int | None = None
    """Stop (to be restarted by a supervisor) after this many jobs."""
    max_megabytes: int | None = None
    """Stop likewise when the process uses more memory than this."""
    until_empty: bool = False
    """Stop when nothing is ready or running on the served queues."""

    def __post_init__(self) -> None:
        _at_least("slots", self.slots, 1)
        for queue in self.served:
            _served(queue)
        for queue, slots in (self.queues or {}).items():
            _at_least(f"the slots of queue {queue!r}", slots, 1)
        for queue, weight in (self.weights or {}).items():
            _at_least(f"the weight of queue {queue!r}", weight, 1)
        if (self.queues is not None and not self.queues) or not self.shared:
            message = "a worker needs at least one queue: queue=..., or --queue NAME"
            raise ConfigError(message)
        _some_or_none(self, "max_jobs", "max_megabytes")

    @property
    def served(self) -> tuple[str, ...]:
        """The queues, in order."""
        return tuple(self.queues) if self.queues is not None else tuple(self.shared)

    @property
    def total_slots(self) -> int:
        """How many jobs run at once."""
        return sum(self.queues.values()) if self.queues is not None else self.slots


def _served(queue: str) -> None:
    """Refuse a queue that no job can be in: a worker of it would wait for ever."""
    try:
        check_queue(queue, "a queue that a worker serves")
    except InvalidArgument as error:
        several = 'Several queues are a list, queues=["mail", "billing"]'
        slots = 'slots of their own a mapping, queues={"mail": 10}'
        raise ConfigError(f"{str(error).rstrip('.')}. {several}; {slots}.") from None


def _some_or_none(settings: msgspec.Struct, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None:
            _at_least(name, value, 1)


def _at_least(name: str, value: int, least: int) -> None:
    given: object = value
    if isinstance(given, bool) or not isinstance(given, int):
        message = f"{name} must be a whole number, got {shown(given)}"
        raise ConfigError(message)
    if value < least:
        message = f"{name} must be at least {least}, got {value!r}"
        raise ConfigError(message)


def load_settings(
    url: str | None,
    given: Mapping[str, Any],
    *,
    config: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from, in order of precedence: arguments, WINDLASS_… variables, the TOML file.

    The file is ``config``, else ``WINDLASS_CONFIG``, else none. Its settings stand at the top
    level or under ``[windlass]``. ``${NAME}`` in its texts is a variable of the environment, so
    that secrets need not be in it. An unknown name is refused wherever it comes from.
    """
    environment = os.environ if environment is None else environment
    path = config or environment.get("WINDLASS_CONFIG")
    in_file = _from_file(Path(path), environment) if path else {}
    in_environment = _from_environment(environment)
    in_call = given if url is None else {**given, "url": url}
    merged: dict[str, Any] = {**in_file, **in_environment, **in_call}
    if not merged.get("url"):
        message = (
            "Windlass needs a storage URL: Windlass('sqlite:///jobs.db'), WINDLASS_URL, or "
            "url = ... in the TOML file"
        )
        raise ConfigError(message)
    try:
        return _checked(merged)
    except ConfigError as error:
        # Whoever reads it may not know that the setting is there at all: say where it was found.
        sources = {name: str(path) for name in in_file}
        sources |= {name: f"WINDLASS_{name.upper()}" for name in in_environment}
        named = [
            f" {name} was read from {source}."
            for name, source in sources.items()
            if name not in in_call and re.search(rf"\b{name}\b", str(error))
        ]
        if not named:
            raise
        raise ConfigError(f"{error}.{''.join(named)}") from None


def _from_file(path: Path, environment: Mapping[str, str]) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 -- most apps have no file

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"cannot read the settings file {path}: {error.strerror or error}"
        raise ConfigError(message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{path} is no valid TOML: {error}"
        raise ConfigError(message) from error
    section = content.get("windlass", content)
    if not isinstance(section, dict):
        message = f"[windlass] in {path} must be a table"
        raise ConfigError(message)
    return {
        name: _filled(value, environment, f"{name} in {path}") for name, value in section.items()
    }


def _filled(value: Any, environment: Mapping[str, str], where: str) -> Any:
    """With the environment's values for ``${NAME}`` in its texts; ``$${`` is ``${`` itself."""
    match value:
        case str():
            return _VARIABLE.sub(lambda found: _variable(found, environment, where), value)
        case list():
            return [_filled(part, environment, where) for part in value]
        case dict():
            return {key: _filled(part, environment, where) for key, part in value.items()}
        case _:
            return value


def _variable(found: re.Match[str], environment: Mapping[str, str], where: str) -> str:
    if found[0] == "$${":
        return "${"
    name, otherwise = found["name"], found["otherwise"]
    if name is None:
        message = (
            f"{where} has a ${{ that names no variable: write ${{NAME}} or ${{NAME:-default}}, "
            f"or $${{ for the two characters themselves"
        )
        raise ConfigError(message)
    value = environment.get(name)
    if value is None and otherwise is None:
        message = (
            f"{where} needs the environment variable {name}, which is not set. Set it, or write a "
            f"default: ${{{name}:-default}}"
        )
        raise ConfigError(message)
    return (value or otherwise or "") if otherwise is not None else value or ""


_NOT_SETTINGS = frozenset({"config", "log_level", "log_format"})
"""WINDLASS_… variables with a meaning of their own."""


def _from_environment(environment: Mapping[str, str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    known = set(Settings.__struct_fields__)
    for variable, value in environment.items():
        if not variable.startswith("WINDLASS_"):
            continue
        name = variable.removeprefix("WINDLASS_").lower()
        if name in _NOT_SETTINGS or name.startswith("test_"):
            continue
        if name not in known:
            message = f"{variable} is no setting.{suggestion(name, known)}"
            raise ConfigError(message)
        if name in {"imports", "dashboard_auth"}:
            found[name] = tuple(part.strip() for part in value.split(",") if part.strip())
        else:
            found[name] = value
    return found


def _checked(merged: Mapping[str, Any]) -> Settings:
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    checked: dict[str, Any] = {}
    for name, value in merged.items():
        field = fields.get(name)
        if field is None:
            message = f"{name!r} is no setting.{suggestion(name, fields)}"
            raise ConfigError(message)
        if field.type in (timedelta, timedelta | None):
            missing = value is None and field.type is not timedelta
            checked[name] = None if missing else parse_duration(value, name)
            continue
        if name in _READ:
            checked[name] = _READ[name](value)
            continue
        try:
            # Not strict: numbers arrive as text from the environment.
            checked[name] = msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError:
            # Whatever was written for log-in may be a secret: it is not repeated.
            secret = name == "dashboard_auth"
            wanted = "a list of NAME:ROLE:HASH" if secret else _wanted(field.type)
            got = "" if secret else f", got {shown(value)}"
            message = f"{name} must be {wanted}{got}"
            raise ConfigError(message) from None
    return Settings(**checked)


def _plugins(given: object) -> dict[str, Grants]:
    """Grants by the names of plugins. Names alone grant nothing: the refusal says what to grant."""
    try:
        table = msgspec.json.decode(given) if isinstance(given, str) else given
        if not isinstance(table, Mapping):
            table = dict.fromkeys(msgspec.convert(table, tuple[str, ...]), Grants())
        return msgspec.convert(dict(table), dict[str, Grants])
    except msgspec.MsgspecError as error:
        message = (
            f"plugins must be a table of plugins and what they may do, such as "
            f'{{"mail": {{"tasks": true, "queues": ["mail"]}}}}, got {shown(given)}: {error}'
        )
        raise ConfigError(message) from None


def _backoff(given: object) -> Backoff | None:
    if isinstance(given, str):
        return parse_backoff(given, "backoff")
    if given is not None and not isinstance(given, Backoff):
        message = f"backoff must be a Backoff such as Backoff.fixed(5), got {shown(given)}"
        raise ConfigError(message)
    return given


_READ: Mapping[str, Callable[[object], object]] = {"plugins": _plugins, "backoff": _backoff}
"""Settings that have their own reader."""


def _wanted(kind: Any) -> str:
    """What a setting of this type may be, in words."""
    for part in get_args(kind):
        if get_origin(part) is Literal:  # one of these words, or nothing
            return _wanted(part)
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if kind is int or kind == int | None:
        return "a whole number"
    if kind is bool:
        return "true or false"
    return "text" if kind is str else "a list of module names such as ['shop.jobs']"
