"""Options of a task and of one call, checked where they are written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

import msgspec

from windlass._core.job.control import Control
from windlass._core.job.job import NO_TIMEOUT, OnLost
from windlass._core.job.unique import UniqueKey as StoredUnique
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.breaker import Breaker
from windlass._core.values.instants import duration
from windlass._core.values.names import check_name, check_queue, check_text, shown
from windlass._core.values.option_hints import suggest_option
from windlass._storage.protocol.transactions import UserConnection
from windlass._tasks.limits import Costs, Limit, breaker_of, limits_of
from windlass._tasks.unique import Unique, unique_of
from windlass.errors import ConfigError, InvalidArgument

__all__ = [
    "ExceptionClasses",
    "JobOptions",
    "Program",
    "RunIn",
    "TaskOptions",
    "alias_names",
    "check_wake",
    "first_set",
    "reserved_tags",
    "some_time",
    "tag_names",
    "task_options",
]

RunIn = Literal["auto", "loop", "thread", "process"]
ExceptionClasses = type[Exception] | Sequence[type[Exception]]

_PRIORITIES = range(-(2**15), 2**15)
_MOST_ATTEMPTS = 1_000_000
_EXIT_CODES = range(1, 256)


class Program(msgspec.Struct, frozen=True):
    """A program that runs the jobs of a task: ``@app.task(run_in=Program(["./resize"]))``.

    It reads each job as one line of JSON from standard input. What it writes to standard error is
    the job's log. No shell is involved.

    - ``command``: the program and its arguments.
    - ``warm``: keep processes for further jobs. They answer each line with lines of JSON. By
      default a process runs one job, and standard output is the result.
    - ``env``: environment variables to add to those of the worker.
    - ``cwd``: the directory to start it in. Default: the worker's.
    - ``give_up_codes``: exit codes after which the job is not retried.
    """

    command: Sequence[str]
    warm: bool = False
    env: Mapping[str, str] = {}
    cwd: str | os.PathLike[str] | None = None
    give_up_codes: Sequence[int] = ()

    def __post_init__(self) -> None:
        given: Any = self
        command = given.command
        if isinstance(command, str) or not (isinstance(command, Sequence) and command):
            message = (
                f"a program's command is a list such as Program(['./resize', '--fast']), got "
                f"{shown(command)}. No shell splits it: shlex.split(…) does"
            )
            raise InvalidArgument(message)
        if isinstance(command[0], os.PathLike):
            message = f"a program's command is a list of texts: write str(path) for {command[0]}"
            raise InvalidArgument(message)
        for part in command:
            _check_word(part, "a part of a program's command")
        if not command[0]:
            message = "the first part of a program's command is the program: it must not be empty"
            raise InvalidArgument(message)
        if given.warm not in (True, False):
            message = f"warm must be True or False, got {shown(given.warm)}"
            raise InvalidArgument(message)
        if not isinstance(given.env, Mapping):
            message = f"env is a mapping such as env={{'LANG': 'C'}}, got {shown(given.env)}"
            raise InvalidArgument(message)
        for name, value in given.env.items():
            _check_word(name, "the name of a variable in env")
            if not name or "=" in name:
                message = f"the name of a variable in env must not hold '=', got {shown(name)}"
                raise InvalidArgument(message)
            _check_word(value, f"env[{name!r}]")
        if given.cwd is not None and not isinstance(given.cwd, str | os.PathLike):
            message = f"cwd must be a path, got {shown(given.cwd)}"
            raise InvalidArgument(message)
        codes = given.give_up_codes
        whole = isinstance(codes, Sequence) and all(type(code) is int for code in codes)
        if not whole or any(code not in _EXIT_CODES for code in codes):
            message = f"give_up_codes is a list of exit codes from 1 to 255, got {shown(codes)}"
            raise InvalidArgument(message)

    def __str__(self) -> str:
        """Name it in messages: without its arguments, which may be secret."""
        return f"program {self.command[0]!r}"


def _check_word(word: object, what: str) -> None:
    if not isinstance(word, str) or "\0" in word:
        message = f"{what} must be text without NUL, got {shown(word)}"
        raise InvalidArgument(message)


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a task's jobs. A call may override them."""

    name: str
    queue: str | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    """None: the app's setting. `NO_TIMEOUT`: none, also if the app has one."""
    soft_timeout: timedelta | None = None
    """Tell the handler after this time that it should end."""
    backoff: Backoff | None = None
    priority: int = 0
    run_in: RunIn | Program = "auto"
    tags: tuple[str, ...] = ()
    expires: timedelta | None = None
    on_crash: Literal["fail", "retry"] = "fail"
    on_lost: OnLost = "retry"
    retry_on: tuple[type[Exception], ...] | None = None
    """Retry only after these exceptions. None: after every exception."""
    give_up_on: tuple[type[Exception], ...] = ()
    """Do not retry after these exceptions."""
    limits: tuple[Limit, ...] = ()
    breaker: Breaker | None = None
    unique: Unique | None = None
    aliases: tuple[str, ...] = ()
    """Former names: jobs that are stored under them run, too."""
    store_result: bool = True
    """False: a job that succeeds stores no result."""
    on_failure: Any = None
    """A task, or its name, to enqueue when a job has failed for good."""
    on_success: Any = None
    """A task, or its name, to enqueue when a job has succeeded."""

    def __post_init__(self) -> None:
        _check_task_name(self.name, "a task's name")
        for alias in self.aliases:
            _check_task_name(alias, f"an alias of task {self.name!r}")
        if len({self.name, *self.aliases}) <= len(self.aliases):
            message = f"aliases of task {self.name!r} are other names than its own, each given once"
            raise InvalidArgument(message)
        _check_shared(self.queue, self.max_attempts, self.priority, self.backoff)
        some_time(self.timeout or None, "timeout")
        some_time(self.expires, "expires")
        if self.timeout and self.soft_timeout and self.soft_timeout >= self.timeout:
            message = (
                f"soft_timeout ({self.soft_timeout}) must be shorter than timeout "
                f"({self.timeout}): the handler needs time to clean up"
            )
            raise InvalidArgument(message)
        if not isinstance(self.run_in, Program) and self.run_in not in get_args(RunIn):
            choice = "'auto', 'loop', 'thread' or 'process', or a Program"
            message = f"run_in must be {choice}, got {shown(self.run_in)}"
            raise InvalidArgument(message)
        if self.on_crash not in ("fail", "retry"):
            message = f"on_crash must be 'fail' or 'retry', got {shown(self.on_crash)}"
            raise InvalidArgument(message)
        _check_on_lost(self.on_lost)
        if self.store_result not in (True, False):
            message = f"store_result must be True or False, got {shown(self.store_result)}"
            raise InvalidArgument(message)
        _check_lists(self.retry_on, self.give_up_on)


def _check_task_name(name: str, what: str) -> None:
    check_name(name, what)
    if "/" in name:
        # A unique key is stored as TASK/KEY: two tasks must not share one.
        message = f"{what} must not contain '/', got {name!r}"
        raise InvalidArgument(message)


def alias_names(given: object) -> tuple[str, ...]:
    """Aliases as a task keeps them. A single text is refused, as for tags."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        message = f"aliases is a list of names such as aliases=['charge'], got {shown(given)}"
        raise InvalidArgument(message)
    return tuple(given)


def task_options(given: Mapping[str, Any], *, name: str) -> TaskOptions:
    """Check the options of ``@app.task``. ``name`` is used unless they give one."""
    options = {"name": name, **{key: value for key, value in given.items() if value is not None}}
    for key in set(given) - set(TaskOptions.__struct_fields__):
        hint = suggest_option(key, TaskOptions.__struct_fields__)
        message = f"{key!r} is no option of a task.{hint}"
        raise ConfigError(message)
    for key in ("timeout", "soft_timeout", "expires"):
        if key in options:
            options[key] = some_time(options[key], key)
    if given.get("timeout", NO_TIMEOUT) is None:
        options["timeout"] = NO_TIMEOUT  # None was written: no timeout, also if the app has one
    for key in ("retry_on", "give_up_on"):
        if key in options:
            options[key] = _exception_classes(options[key], key)
    options["aliases"] = alias_names(options.get("aliases", ()))
    options["tags"] = tag_names(options.get("tags", ()))
    options["limits"] = limits_of(options.get("limits", ()))
    options["breaker"] = breaker_of(options.get("breaker", False), options["name"])
    options["unique"] = unique_of(options.get("unique", False))
    return TaskOptions(**options)


def _exception_classes(given: object, what: str) -> tuple[type[Exception], ...]:
    listed = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else given
    classes = listed if isinstance(listed, tuple) else (listed,)
    for each in classes:
        if not isinstance(each, type) or not issubclass(each, Exception):
            message = (
                f"{what} takes classes of exceptions such as {what}=(ConnectionError,), "
                f"got {shown(each)}"
            )
            raise InvalidArgument(message)
        if issubclass(each, Control):
            message = f"{each.__name__} already decides what follows: leave it out of {what}"
            raise InvalidArgument(message)
    if not classes:
        instead = "leave it out"
        if what == "retry_on":
            instead = (
                "give max_attempts=1 to retry nothing, or give_up_on=Exception to run again only "
                "after raise Retry(...)"
            )
        message = f"{what} names no exception: {instead}"
        raise InvalidArgument(message)
    return classes


def _check_lists(
    retry_on: tuple[type[Exception], ...] | None, give_up_on: tuple[type[Exception], ...]
) -> None:
    for each in retry_on or ():
        if issubclass(each, give_up_on):
            message = (
                f"retry_on names {each.__name__}, and give_up_on excludes it and takes "
                f"precedence: remove it from one of them"
            )
            raise InvalidArgument(message)


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one call. None follows the task."""

    delay: timedelta | None = None
    at: datetime | None = None
    priority: int | None = None
    unique: StoredUnique | None = None
    """The key that the call sets."""
    rule: Unique | None = None
    """The task's rule, as changed by the call."""
    keyless: bool = False
    """Use no key, also if the task has one."""
    queue: str | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    backoff: Backoff | None = None
    tags: tuple[str, ...] | None = None
    expires: timedelta | None = None
    on_lost: OnLost | None = None
    correlation_id: str | None = None
    principal: str | None = None
    tenant: str | None = None
    parent: str | None = None
    connection: UserConnection | None = None
    """The user's connection. The job is stored in the transaction that is open on it."""
    wake: Literal["commit"] | None = None
    cost: Costs | None = None

    def __post_init__(self) -> None:
        _check_shared(self.queue, self.max_attempts, self.priority, self.backoff)
        check_wake(self.wake, self.connection)
        _check_on_lost(self.on_lost)
        for name in ("correlation_id", "principal", "tenant"):
            text = getattr(self, name)
            if text is not None:
                check_text(text, name)
        if self.delay is not None and self.at is not None:
            message = "give delay= or at=, not both"
            raise InvalidArgument(message)


def _check_shared(
    queue: str | None, max_attempts: int | None, priority: int | None, backoff: Backoff | None
) -> None:
    if queue is not None:
        check_queue(queue)
    if max_attempts is not None and not _whole(max_attempts, range(1, _MOST_ATTEMPTS + 1)):
        message = (
            f"max_attempts counts executions: a whole number, at least 1 and at most "
            f"{_MOST_ATTEMPTS:,}, got {shown(max_attempts)}"
        )
        raise InvalidArgument(message)
    if priority is not None:
        check_priority(priority)
    curve: object = backoff
    if curve is not None and not isinstance(curve, Backoff):
        wait = curve if isinstance(curve, (int, float)) and not isinstance(curve, bool) else 5
        message = f"backoff must be a Backoff such as Backoff.fixed({wait!r}), got {shown(curve)}"
        raise InvalidArgument(message)


def _check_on_lost(on_lost: object) -> None:
    if on_lost not in (None, "retry", "fail"):
        message = f"on_lost must be 'retry' or 'fail', got {shown(on_lost)}"
        raise InvalidArgument(message)


def check_priority(priority: object) -> None:
    """Refuse a priority that does not fit into its column."""
    if not _whole(priority, _PRIORITIES):
        message = (
            f"priority must be a whole number that fits 16 bits (lower runs first), "
            f"got {shown(priority)}"
        )
        raise InvalidArgument(message)


def check_wake(wake: object, connection: UserConnection | None) -> None:
    """Refuse ``wake`` without a connection: only a user's transaction needs it."""
    if wake is not None and wake != "commit":
        message = f"wake must be 'commit' or left out, got {shown(wake)}"
        raise InvalidArgument(message)
    if wake is not None and connection is None:
        message = "wake= belongs to connection=: without one, workers are woken anyway"
        raise InvalidArgument(message)


def _whole(value: object, allowed: range) -> bool:
    """Refuse True and 1.0, which would pass for 1 and come back from the store as something
    else.
    """
    return isinstance(value, int) and not isinstance(value, bool) and value in allowed


_RESERVED = ("plugin:", "schedule:", "secret:")
"""Prefixes of our own tags. They name the plugin of a job and what to hide. A user's tag must not
make a job look like a plugin's, or hide its arguments.
"""


def reserved_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags that Windlass itself has set."""
    return tuple(tag for tag in tags if tag.startswith(_RESERVED))


def tag_names(tags: Sequence[str]) -> tuple[str, ...]:
    """Check tags. A single text is refused: its letters are hardly the tags that were meant."""
    given: object = tags
    texts = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
    if not all(isinstance(tag, str) for tag in texts):
        message = f"tags must be a list of texts such as tags=['vip'], got {shown(tags)}"
        raise InvalidArgument(message)
    names = tuple(check_text(tag, "a tag") for tag in texts if isinstance(tag, str))
    for name in names:
        if name.startswith(_RESERVED):
            message = (
                f"tags that begin with {', '.join(_RESERVED)} are set by Windlass alone: leave out "
                f"{shown(name)}, or choose another word before the colon"
            )
            raise InvalidArgument(message)
    return names


def first_set(*timeouts: timedelta | None) -> timedelta | None:
    """Return the first value that is not None, which may be `NO_TIMEOUT`."""
    return next((timeout for timeout in timeouts if timeout is not None), None)


def some_time(value: timedelta | float | str | None, what: str) -> timedelta | None:
    """Read a duration above 0: a job that may take no time cannot run."""
    if value is None:
        return None
    span = duration(value, what)
    if span == timedelta(0):
        message = f"{what} must be longer than nothing; leave it out for the default"
        raise InvalidArgument(message)
    return span
