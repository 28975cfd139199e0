"""Everything Windlass raises on purpose, in one hierarchy. Every message says what to do next."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import timedelta

__all__ = [
    "AlreadyFinished",
    "AmbiguousId",
    "AppClosed",
    "BlockingCallOnLoop",
    "BreakerUnknown",
    "ChildDied",
    "ChildError",
    "ChildNotStarted",
    "ClaimLost",
    "ConfigError",
    "DefinitionError",
    "DuplicateTask",
    "FlowEnded",
    "FlowNotFound",
    "FlowTimeout",
    "IdConflict",
    "IllegalTransition",
    "InvalidArgument",
    "JobCancelled",
    "JobDiscarded",
    "JobExpired",
    "JobFailed",
    "JobNotFound",
    "JobTimeout",
    "KeyBusy",
    "KeyConflict",
    "LimitUnknown",
    "MissingDependency",
    "NotGranted",
    "PayloadError",
    "PayloadTooLarge",
    "PluginUnknown",
    "ProgramFailed",
    "ResultError",
    "ResultTimeout",
    "ResultsUnavailable",
    "ScheduleBusy",
    "ScheduleExists",
    "ScheduleUnknown",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServiceMissing",
    "StorageError",
    "StorageFull",
    "StorageRefused",
    "StorageReplaced",
    "StorageUnavailable",
    "StoreBusy",
    "UnknownScheme",
    "UnknownTask",
    "WindlassError",
    "WrongEventLoop",
    "WrongState",
    "ids_of",
    "suggestion",
]


def suggestion(name: str, known: Collection[str]) -> str:
    """Return ``" Did you mean 'x'?"`` if a similar name is known, else an empty text."""
    from difflib import get_close_matches  # noqa: PLC0415 -- only a wrong name needs it

    near = get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


_DIGEST = re.compile(r"((?:arguments|\\?s\\?e\\?c\\?r\\?e\\?t)\\?:)(?:\\?[0-9a-f]){20,64}")


def _readable(text: str) -> str:
    """Escape control characters, for a terminal or a log."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text
    )


def ids_of(error: BaseException) -> tuple[str, ...]:
    """Return the job ids that a failed call had used: ``error.ids``, or those of the cancellation
    behind a TimeoutError. Empty if the call enqueued nothing.
    """
    seen: BaseException | None = error
    while seen is not None:
        ids = getattr(seen, "ids", ())
        if isinstance(ids, tuple) and ids:
            return ids
        seen = seen.__cause__
    return ()


class WindlassError(Exception):
    """Base class of everything this library raises on purpose."""

    ids: tuple[str, ...] = ()
    """The ids that an enqueueing call had used. The jobs may have been stored. Repeat the call with
    these ids (``options(id=…)``, ``enqueue_many(calls, ids=…)``), and none is stored twice.
    """

    @property
    def code(self) -> str:
        """The class name in small letters, such as ``service_missing``, for programs."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()


# --- definitions and settings ---------------------------------------------------------------


class ConfigError(WindlassError, ValueError):
    """A setting is missing, unknown or out of range."""


class DefinitionError(WindlassError, TypeError):
    """A function cannot be registered as a task the way it is written."""


class DuplicateTask(DefinitionError):
    """Two functions have the same task name."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(
            f"Two tasks are named {name!r}: {first} and {second}. Give one of them another "
            f"name with @app.task(name=...). In a test, use windlass.testing.replaced(...)."
        )
        self.name = name


class UnknownTask(WindlassError, LookupError):
    """No registered task has this name."""

    def __init__(self, task: str, known: Collection[str]) -> None:
        super().__init__(
            f"No task named {task!r} is registered.{suggestion(task, known)} Import the module "
            f"that defines it before it is used, or list it in Windlass(imports=[...])."
        )
        self.task = task


class UnknownScheme(ConfigError):
    """The URL names a backend that does not exist."""

    def __init__(self, scheme: str, known: Collection[str]) -> None:
        super().__init__(
            f"No storage backend is called {scheme!r}.{suggestion(scheme, known)} "
            f"Use one of: {', '.join(sorted(known))}."
        )
        self.scheme = scheme


class MissingDependency(WindlassError, ImportError):
    """A feature needs a library that is not installed."""

    def __init__(self, feature: str, install: str) -> None:
        super().__init__(f"{feature} needs another library: pip install '{install}'")
        self.install = install


class InvalidArgument(WindlassError, ValueError):
    """A value of a call is invalid."""


class AppClosed(WindlassError, RuntimeError):
    """The app was used after it was closed."""


class BlockingCallOnLoop(WindlassError, RuntimeError):
    """A blocking call was made on a thread whose event loop is running."""

    def __init__(self, blocking: str, instead: str) -> None:
        super().__init__(
            f"{blocking} would block the running event loop. Use `await {instead}` here; the "
            f"blocking form is for code without a loop (Flask, Django, scripts)."
        )


class WrongEventLoop(WindlassError, RuntimeError):
    """The code does not run on asyncio, or on green threads that the call cannot work with."""


# --- plugins and payloads -------------------------------------------------------------------


class NotGranted(WindlassError):
    """A plugin needs or uses something that its host has not granted."""


class PluginUnknown(WindlassError, LookupError):
    """No plugin of this name is installed here."""


class ServiceMissing(WindlassError, LookupError):
    """A handler needs a host service that is not attached."""


class PayloadError(WindlassError, TypeError):
    """Arguments or a result cannot be stored as JSON, or stored JSON does not fit."""


class PayloadTooLarge(PayloadError):
    """Arguments or a result exceed the size limit."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} is {size:,} bytes, above the limit of {limit:,}. Store the large part "
            f"elsewhere (a file, an object store, a table) and pass its key."
        )
        self.size: int = size
        self.limit: int = limit


# --- jobs -----------------------------------------------------------------------------------


class IllegalTransition(WindlassError):
    """A verb was applied in a state that does not allow it."""

    def __init__(self, state: str, verb: str, allowed: Collection[str]) -> None:
        may = ", ".join(allowed) or "nothing: the state is final"
        super().__init__(f"Cannot {verb} a job that is {state}, which allows {may}.")
        self.state: str = state
        self.verb: str = verb


class JobNotFound(WindlassError, LookupError):
    """No job has this id: it never existed, or retention has deleted it."""

    def __init__(self, job_id: str, message: str = "") -> None:
        """Make the error. ``message``: replaces the usual text."""
        super().__init__(
            message
            or f"No job {job_id} is stored. Check the id; finished jobs are removed after their "
            f"retention (keep_succeeded, keep_failed)."
        )
        self.job_id = job_id


class AmbiguousId(WindlassError, LookupError):
    """Several jobs, or flows, have ids that match this short one."""

    def __init__(
        self, job_id: str, candidates: Collection[str], *, more: bool = False, of: str = "jobs"
    ) -> None:
        """Make the error. ``more``: there are further candidates. ``of``: jobs or flows."""
        named = ", ".join(candidates) + (" and others" if more else "")
        super().__init__(f"Several {of} may be meant by {job_id}: {named}. Give the whole id.")
        self.job_id: str = job_id
        self.candidates: tuple[str, ...] = tuple(candidates)


class WrongState(WindlassError):
    """The job exists but its state does not allow the operation."""

    def __init__(
        self, job_id: str, state: str, operation: str, needs: str = "", *, why: str = ""
    ) -> None:
        """Make the error. ``why``: replaces what the operation needs."""
        why = why or f"it is {state}, and {operation} needs {needs}."
        super().__init__(f"Cannot {operation} job {job_id}: {why}")
        self.job_id: str = job_id
        self.state: str = state


class IdConflict(WindlassError):
    """A given id belongs to another job that is stored."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"The id {job_id} is stored with another task or other arguments. An id repeats one "
            f"call: give it with the same task and arguments, or leave it out for a new job."
        )
        self.job_id = job_id


class KeyConflict(WindlassError):
    """A unique key is held by another job."""

    def __init__(self, key: str, holder: str, *, of_flow: bool = False) -> None:
        # A key made from arguments holds a digest of them, by which short secrets could be guessed.
        told = _DIGEST.sub(r"\1***", key)
        reuse = "With on_conflict='reuse' the call returns that job instead."
        super().__init__(
            f"The unique key {told!r} is held by job {holder}. Wait for it to finish, or cancel "
            f"it. {'Nothing of the flow was stored.' if of_flow else reuse}"
        )
        self.key: str = key
        self.holder: str = holder


class KeyBusy(WindlassError):
    """Another open transaction is deciding about a unique key. Try again."""


class ClaimLost(WindlassError):
    """``ctx.finish`` came too late: another run owns the job by now."""

    def __init__(self, job_id: str, why: str) -> None:
        super().__init__(
            f"Job {job_id} cannot be finished by this run: {why}. Let the error pass: the "
            f"transaction it happened in must be rolled back, so that nothing is written twice."
        )
        self.job_id = job_id


class AlreadyFinished(ClaimLost):
    """``ctx.finish`` was called again, after it had succeeded."""


class LimitUnknown(WindlassError, LookupError):
    """A job names a limit that no code has defined."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        super().__init__(
            f"No limit named {name!r} is defined.{suggestion(name, known)} Define it before "
            f"enqueueing jobs that use it."
        )
        self.name = name


class BreakerUnknown(WindlassError, LookupError):
    """A task has no breaker, or none that has been stored yet."""

    def __init__(self, task: str, known: Collection[str]) -> None:
        super().__init__(
            f"Task {task!r} has no breaker here.{suggestion(task, known)} Give it one with "
            f"@app.task(breaker=True). It is stored when a worker starts, or with its first job."
        )
        self.task = task


class ScheduleUnknown(WindlassError, LookupError):
    """No schedule has this name."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        names = f" Known: {', '.join(sorted(known))}." if known else " No schedule is stored yet."
        super().__init__(f"no schedule {name!r}.{suggestion(name, known)}{names}")


class ScheduleExists(WindlassError):
    """A schedule has this name already."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"schedule {name!r} already exists: change it, or give the new one another name"
        )


class ScheduleBusy(WindlassError):
    """The schedule has as many active runs as its ``overlap`` allows."""

    def __init__(self, name: str, active: int) -> None:
        super().__init__(
            f"schedule {name!r} was not started: {active} of its runs "
            f"{'is' if active == 1 else 'are'} waiting or running, and its overlap= allows no "
            f"more. Wait for them, cancel them, or change overlap."
        )


class ResultError(WindlassError):
    """``job.result()`` has no value to return. The subclasses say why."""

    def __init__(self, job_id: str, message: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobTimeout(WindlassError):
    """A run took longer than its timeout. Never raised to you: it is the ``kind`` of a failure."""


class ChildError(WindlassError):
    """A handler raised ``kind`` in a child process. Middleware sees this, never the exception."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind: str = kind
        self.text: str = text


class ChildDied(ChildError):
    """A child process has ended in the middle of its job: killed, crashed, or out of memory."""


class ProgramFailed(ChildError):
    """A program answered with an error, ended without a result, or wrote something unexpected."""

    def __init__(
        self, kind: str, text: str, *, retry: bool = True, after: timedelta | None = None
    ) -> None:
        super().__init__(kind, text)
        self.retry: bool = retry
        """Whether another attempt may help."""
        self.after: timedelta | None = after
        """The wait that the program asked for; None follows the backoff."""


class ChildNotStarted(WindlassError):
    """A child process could not be started, or could not import the app."""


class JobFailed(ResultError):
    """The job used up its attempts or gave up."""

    def __init__(self, job_id: str, kind: str, text: str) -> None:
        said = _readable(text.strip())
        why = f"{_readable(kind)}: {said}" if said else _readable(kind)
        stop = "" if why.endswith((".", "!", "?")) else "."
        super().__init__(
            job_id,
            f"Job {job_id} failed with {why}{stop} Its attempts and tracebacks are in "
            f"app.admin.jobs.history({job_id!r}); app.admin.jobs.requeue runs it again.",
        )
        self.kind: str = kind
        self.text: str = text


class JobCancelled(ResultError):
    """The job was cancelled."""

    def __init__(self, job_id: str, reason: str = "") -> None:
        why = f": {_readable(reason)}" if reason else ""
        super().__init__(job_id, f"Job {job_id} was cancelled before it succeeded{why}.")


class JobDiscarded(ResultError):
    """An operator discarded the job."""

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(job_id, f"Job {job_id} was discarded ({reason}); it will not run.")


class JobExpired(JobDiscarded):
    """The job was not started before its expiry."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id, "expired: no worker started it in time")


class FlowNotFound(WindlassError, LookupError):
    """No flow has this id: it never existed, or retention has deleted it."""

    def __init__(self, flow_id: str, message: str = "") -> None:
        """Make the error. ``message``: replaces the usual text."""
        super().__init__(
            message
            or f"No flow {flow_id} is stored. Check the id; ended flows are removed after their "
            f"retention (keep_succeeded, keep_failed)."
        )
        self.flow_id = flow_id


class FlowEnded(WindlassError):
    """The flow takes no more jobs: it was cancelled, has ended or expired. None of them has run."""

    def __init__(self, flow_id: str, message: str = "") -> None:
        super().__init__(
            message
            or f"Flow {flow_id} was cancelled while its jobs were being stored. None of them has "
            f"run: draw the flow again and start it."
        )
        self.flow_id = flow_id


class FlowTimeout(WindlassError, TimeoutError):
    """The flow had not ended when the wait ended. It was not stopped."""

    def __init__(self, flow_id: str, open_jobs: int) -> None:
        jobs = "1 job" if open_jobs == 1 else f"{open_jobs:,} jobs"
        super().__init__(
            f"Flow {flow_id} is still running, with {jobs} not ended. Wait again with "
            f"a longer timeout, or ask `windlass flows explain {flow_id}`."
        )
        self.flow_id = flow_id


class ResultTimeout(ResultError, TimeoutError):
    """The job had not finished when the wait ended. It was not stopped."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(
            job_id,
            f"Job {job_id} is still {state}. Wait again with a longer timeout, or check that a "
            f"worker serves its queue.",
        )
        self.state = state


# --- storage --------------------------------------------------------------------------------


class StorageError(WindlassError):
    """The storage could not carry out a call."""


class StoreBusy(StorageError):
    """Another process holds the storage. Nothing was written."""


class StorageUnavailable(StorageError):
    """The storage cannot be reached or opened. The jobs of an enqueue may have been stored: repeat
    it with ``error.ids``.
    """


class ResultsUnavailable(StorageError):
    """The results of a group cannot be read now. A handler that lets this error pass runs again,
    without using an attempt.
    """


class StorageRefused(StorageUnavailable):
    """The storage refuses the connection: wrong password, database, scheme or permission."""


class StorageFull(StorageError):
    """The storage has no space left. Nothing was written. Free some, then try again."""


class StorageReplaced(StorageError):
    """The database file was deleted or replaced while it was open."""


class SchemaTooNew(StorageError):
    """The stored schema was written by a newer Windlass."""


class SchemaTooOld(StorageError):
    """The storage must be migrated, and ``migrate="manual"``: run ``windlass db migrate``."""


class SchemaMissing(StorageError):
    """The connection leads to a database without the tables of Windlass."""
