"""Why a job is where it is, with the button that ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from windlass._admin.explain.cause import Cause, without_commands
from windlass._core.values.redaction import MASK
from windlass._web.request import PageRequest

__all__ = ["ShownCause", "shown_causes_of"]


class CauseButton(msgspec.Struct, frozen=True):
    """An order that is asked first."""

    words: str
    path: str
    query: Mapping[str, str]


class ShownCause(msgspec.Struct, frozen=True):
    """One cause, as the page tells it."""

    sentence: str
    advice: str
    """With a button: what it does not say itself. Without: a command, where there is one."""
    button: CauseButton | None = None


def shown_causes_of(visit: PageRequest, job: str, causes: Sequence[Cause]) -> list[ShownCause]:
    """Return causes with a button for people who may press it, and the command for all others."""
    return [_told(visit, job, cause) for cause in causes]


def _told(visit: PageRequest, job: str, cause: Cause) -> ShownCause:
    button = _button(job, cause)
    if button is None or not visit.may(_role(visit, button.path)):
        return ShownCause(cause.sentence, cause.fix)
    return ShownCause(cause.sentence, without_commands(cause.fix), button)


def _role(visit: PageRequest, path: str) -> str:
    """Return the role that may press it, by the table of routes."""
    return next(str(route.role) for route in visit.dashboard.routes if route.path == path)


def _button(job: str, cause: Cause) -> CauseButton | None:
    def of(name: str) -> str:
        return str(cause.evidence.get(name, ""))

    this = {"job": job, "from": "job"}
    match cause.code:
        case "failed" | "cancelled" | "discarded" if not of("flow"):  # a flow ends its own jobs
            return CauseButton("Requeue", "/jobs/requeue", this)
        case "running":
            return CauseButton("Cancel", "/jobs/cancel", this)
        case "scheduled" | "retry_due" | "snoozed" | "throttled":
            return CauseButton("Run now", "/jobs/run-now", this)
        case "queue_paused":
            return CauseButton("Resume queue", "/queues/resume", {"queue": of("queue")})
        case "queue_cooling":
            return CauseButton("End cool-down", "/queues/warm", {"queue": of("queue")})
        case "queue_full":
            return CauseButton("Queue settings", "/queues/settings", {"queue": of("queue")})
        case "limit_full":
            return CauseButton("Change limit", "/limits/set", {"limit": of("limit")})
        case "rate_spent" if MASK not in of("key"):
            return CauseButton(
                "Refill bucket", "/limits/fill", {"limit": of("limit"), "key": of("key")}
            )
        case "breaker_open" | "breaker_trial":
            return CauseButton("Close breaker", "/breakers/close", {"task": of("task")})
        case "workers_quiet":
            return _resume(cause)
        case _:
            return None


def _resume(cause: Cause) -> CauseButton | None:
    workers: Mapping[str, str] = cause.evidence.get("workers", {})
    quiet = [worker for worker, duty in workers.items() if duty == "quiet"]
    return CauseButton("Resume worker", "/workers/resume", {"worker": quiet[0]}) if quiet else None
