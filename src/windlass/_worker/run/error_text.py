"""Exceptions as stored text: bounded, and safe against exceptions that misbehave themselves."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Sequence
from types import TracebackType

from windlass._core.flows.pending import Wanted
from windlass._core.job.job import AttemptError, ClaimedJob
from windlass._core.values.redaction import redacted_text
from windlass._plugins.names import plugin_of
from windlass._worker.run.exception_groups import leaf_errors
from windlass.errors import ProgramFailed, UnknownTask

__all__ = [
    "attempt_error_of",
    "exception_name",
    "missing_results",
    "truncate_middle",
    "unknown_task_error",
]

_KIND = 256
_LOOKED_THROUGH = 4
_LISTED = 10
"""Errors of a group that its message names; the traceback has more."""
_MESSAGE_SHARE = 4
"""A message may take a quarter of the room; the traceback gets the rest."""


def exception_name(error: BaseException) -> str:
    """Return the exception's class, with its module unless it is a builtin."""
    cls = type(error)
    name = cls.__qualname__
    return name[:_KIND] if cls.__module__ == "builtins" else f"{cls.__module__}.{name}"[:_KIND]


def unknown_task_error(job: ClaimedJob, known: Collection[str]) -> AttemptError:
    """Return why a worker cannot run a job: it has no such task, or not the plugin that
    brings it.
    """
    plugin = plugin_of(job.tags)
    if plugin is None:
        return AttemptError("UnknownTask", str(UnknownTask(job.task, known)))
    return AttemptError(
        "PluginUnknown",
        f"Plugin {plugin!r}, which brings task {job.task!r}, is not installed in this worker. "
        f"Install it in the app of every worker of queue {job.queue!r}, or remove its schedules.",
    )


def missing_results(missing: Sequence[Wanted]) -> str:
    """Return why a member cannot run without results of jobs that did not succeed."""
    places = ", ".join(dict.fromkeys(str(one.place[0]) for one in missing))
    jobs = ", ".join(dict.fromkeys(one.source for one in missing))
    return (
        f"there is no result for {places}: job {jobs} did not succeed, and this job waits for its "
        f"end alone. Let the parameter take None, as in `T | None`, or leave ended(...) out"
    )


def truncate_middle(text: str, limit: int) -> str:
    """Return at most ``limit`` bytes of UTF-8, head and tail kept: both ends of a
    traceback matter.
    """
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    note = f"\n… {len(raw) - limit:,} bytes cut …\n"
    half = max((limit - len(note.encode())) // 2, 0)
    head, tail = (
        raw[:half].decode("utf-8", "ignore"),
        raw[len(raw) - half :].decode("utf-8", "ignore"),
    )
    return head + note + tail


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 -- its __str__ may raise anything
        return f"<{exception_name(error)} whose text raised {type(broken).__name__}>"


def _own_frames_off(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame that is not Windlass's own."""
    first = trace
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if not module.startswith(("windlass._worker", "asyncio")):
            return trace
        trace = trace.tb_next
    return first


def attempt_error_of(
    error: BaseException, *, limit: int, secrets: Sequence[str] = (), trace: bool = True
) -> AttemptError:
    """Return the stored form of ``error``, without ``secrets``. Causes are part of the traceback,
    which takes longest to write.
    """
    kind, words = _named(error)
    message = _hidden(words, limit // _MESSAGE_SHARE, secrets)
    if not trace:
        return AttemptError(kind, message)
    try:
        lines = traceback.format_exception(
            type(error), error, _own_frames_off(error.__traceback__), limit=-64
        )
        text = "".join(lines)
    except BaseException as broken:  # noqa: BLE001 -- formatting calls into user code
        text = f"<no traceback: formatting it raised {type(broken).__name__}>"
    return AttemptError(kind, message, _hidden(text, limit - len(message.encode()), secrets))


def _named(error: BaseException) -> tuple[str, str]:
    """Return the kind and the text of an error. A group of one goes by the error in it; a larger
    group lists its errors: by itself it says only how many there are.
    """
    if isinstance(error, ProgramFailed):
        return error.kind[:_KIND], error.text
    if not isinstance(error, BaseExceptionGroup):
        return exception_name(error), _text(error)
    found = leaf_errors(error)
    if len(found) == 1:
        return exception_name(found[0]), _text(found[0])
    listed = [f"{exception_name(leaf)}: {_text(leaf)}" for leaf in found[:_LISTED]]
    if len(found) > _LISTED:
        listed.append(f"… and {len(found) - _LISTED:,} more")
    return exception_name(error), f"{_text(error)}: {'; '.join(listed)}"


def _hidden(text: str, limit: int, secrets: Sequence[str]) -> str:
    """Cut to what is looked through in good time, masked, and cut again: half a secret at the
    first cut is nowhere near what the second one keeps.
    """
    return truncate_middle(
        redacted_text(truncate_middle(text, _LOOKED_THROUGH * limit), secrets), limit
    )
